"""Predictions of whole steps of transformers' decoders beside what a GPU really did, by `tools/decoder_steps.py`."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
pytest.importorskip("transformers", reason="transformers is not installed; run `make test-oracles`")
from tools.decoder_accuracy import BEGIN, END, steps, table
from tools.trace_accuracy import PAGE

pytestmark = pytest.mark.oracle


def test_step_times() -> None:
    """6% on average over all; those that launches decide differ by a third from run to run."""
    told = {step.case.name: f"{step.error:+.0%}" for step in steps()}
    assert np.mean([abs(step.error) for step in steps()]) <= 0.06, told
    decided = [step for step in steps() if not step.by_host]
    assert np.mean([abs(step.error) for step in decided]) <= 0.055, told
    assert max(abs(step.error) for step in decided) <= 0.2, told


@pytest.mark.parametrize(("phase", "launch", "most"), [("decode", "graph", 0.05), ("prefill", "graph", 0.06)])
def test_captured_steps(phase: str, launch: str, most: float) -> None:
    some = [step for step in steps() if (step.case.phase, step.case.launch) == (phase, launch)]
    assert len(some) == 20
    assert np.mean([abs(step.error) for step in some]) <= most


def test_the_page_shows_it() -> None:
    """`make modules` writes it again."""
    assert PAGE.read_text().split(BEGIN)[1].split(END)[0] == table()
