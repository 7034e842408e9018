"""Predictions of traced modules beside what a GPU really did, by `tools/trace_modules.py`."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
from tools.trace_accuracy import BEGIN, END, PAGE, cases, table

from gnomon.engines.torch.engine import RUNTIME_BYTES

pytestmark = pytest.mark.oracle

CASES = tuple(cases())
MEDIAN, WORST, WORST_BY_HOST, COVERED = 0.095, 0.27, 0.75, 0.9
"""Errors of step times: the median, the worst, and the worst of steps that waited for the host; and
the share that 90% bands must hold."""
MEMORY, WORKSPACES = 0.02, 0.55e9
"""Of peak memory, the share and the bytes that may be beside the tensors."""
WELL, WELL_ERROR = 4, 0.15
"""So many modules are within this in every case that the device decides."""


def test_step_times() -> None:
    told = {case.name: f"{case.error:+.0%}" for case in CASES}
    assert np.median([abs(case.error) for case in CASES]) <= MEDIAN, told
    assert max(abs(case.error) for case in CASES if not case.by_host) <= WORST, told
    assert max(abs(case.error) for case in CASES) <= WORST_BY_HOST, told


def test_most_modules_are_well_known() -> None:
    worst: dict[str, float] = defaultdict(float)
    for case in CASES:
        if not case.by_host:
            worst[case.row["module"]] = max(worst[case.row["module"]], abs(case.error))
    assert sum(error <= WELL_ERROR for error in worst.values()) >= WELL, worst


def test_bands_hold_what_was_measured() -> None:
    bands = [(case.predicted.time_s, case.row["time_s"]) for case in CASES]
    assert np.mean([band.low <= measured <= band.high for band, measured in bands]) >= COVERED


def test_peak_memory() -> None:
    """What was allocated is the tensors, and beside them workspaces of cuBLAS and cuDNN, which the runtime's share of
    the prediction holds: one for every stream that the process ever captured on. A captured graph keeps a pool too."""
    off = {}
    for case in CASES:
        if case.row["launch"] == "eager":
            tensors = case.predicted.memory_bytes.value - RUNTIME_BYTES
            beside = case.row["peak_bytes"] - tensors
            if not 0 <= beside <= MEMORY * tensors + WORKSPACES:
                off[case.name] = f"{beside / 1e6:.0f} MB"
    assert off == {}


def test_the_page_shows_it() -> None:
    """`make modules` writes it again."""
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert shown == table()
