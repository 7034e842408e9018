"""Predictions of traced modules beside what a GPU really did, by `bench/trace_modules.py`."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
from bench.trace_accuracy import BEGIN, END, PAGE, cases, table

from gnomon.engines.torch.engine import RUNTIME_BYTES

pytestmark = pytest.mark.oracle

CASES = tuple(cases())
MEMORY, MEDIAN, WORST, WORST_BY_HOST, COVERED = 0.08, 0.08, 0.27, 0.7, 0.9
"""Errors of peak memory, and of step times: the median, the worst, and the worst of steps that waited for the host; and
the share that 90% bands must hold."""
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
    """Of tensors, as PyTorch's allocator counts them; a captured graph keeps a pool of its own."""
    off = {}
    for case in CASES:
        if case.row["launch"] == "eager":
            tensors = case.predicted.memory_bytes.value - RUNTIME_BYTES
            off[case.name] = tensors / case.row["peak_bytes"] - 1
    assert {name: f"{error:+.0%}" for name, error in off.items() if abs(error) > MEMORY} == {}


def test_the_page_shows_it() -> None:
    """`make modules` writes it again."""
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0]
    assert shown == table()
