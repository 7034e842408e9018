"""The governor's figures are those that its command fits to the committed measurements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from gnomon.cost.governor import FIGURES, WINDOW_S
from tools import governor_fit

FOLDER = Path(__file__).parents[2] / "measurements" / "h200-2026-11-18"


def test_shipped_figures_are_fitted() -> None:
    loads = list(governor_fit.steady(FOLDER))
    assert len(loads) == 23
    assert asdict(governor_fit.fitted(loads)) == pytest.approx(asdict(FIGURES), abs=6e-4)


def test_loads_kept_aside_are_predicted() -> None:
    loads = list(governor_fit.steady(FOLDER))
    seen = governor_fit.fitted(loads[::2])
    times, watts, _ = np.abs(governor_fit.errors(loads[1::2], seen)).mean(axis=0)
    alone = np.abs(np.log([load.slower for load in loads[1::2]])).mean()
    assert times < 0.5 * alone
    assert watts < 0.05


def test_the_window_is_the_best_of_those_around_it() -> None:
    near = governor_fit.window(FOLDER, governor_fit.ALTERNATING, FIGURES, [WINDOW_S / 3, WINDOW_S, 3 * WINDOW_S])
    assert np.argmin(near) == 1
