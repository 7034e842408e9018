"""Predictions of traced modules beside what a GPU really did, by `bench/trace_modules.py`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")
import torch
from bench.zoo import MODULES

import gnomon
from gnomon.api.trace import ModulePrediction
from gnomon.engines.torch.engine import RUNTIME_BYTES

pytestmark = pytest.mark.oracle

FILES = sorted(Path(__file__).parents[2].glob("measurements/*/modules.json"))
MEMORY, MEDIAN, WORST, COVERED = 0.15, 0.2, 1.0, 0.75
"""Errors of peak memory and of step times (median, and the worst), and the share that 90% bands must hold."""


def chip_of(path: Path) -> str:
    return str(json.loads(path.with_name("measured.json").read_text())["chip"])


def rows() -> list[Any]:
    found = []
    for path in FILES:
        for row in json.loads(path.read_text())["rows"]:
            if "failed" not in row:
                name = f"{row['module']} {row['phase']} {row['dtype']} {row['launch']}"
                found.append(pytest.param(chip_of(path), row, id=name))
    return found


@cache
def predicted(chip: str, module: str, phase: str, dtype: str, launch: str) -> ModulePrediction:
    with torch.device("meta"):
        net, inputs = MODULES[module]()
    return gnomon.trace(
        net,
        inputs,
        on=chip,
        phase=phase,
        dtype="bf16" if dtype == "bf16" else None,
        tf32=dtype == "tf32",
        launch=launch,
        sustained=True,
    )


def answer(chip: str, row: Any) -> ModulePrediction:
    return predicted(chip, *(row[key] for key in ("module", "phase", "dtype", "launch")))


@pytest.mark.skipif(not FILES, reason="no modules were measured yet: bench/trace_modules.py makes the file")
def test_step_times() -> None:
    errors = {param.id: answer(*param.values).time_s.value / param.values[1]["time_s"] - 1 for param in rows()}
    size = np.abs(list(errors.values()))
    told = {name: f"{error:+.0%}" for name, error in errors.items()}
    assert np.median(size) <= MEDIAN, told
    assert size.max() <= WORST, told


@pytest.mark.skipif(not FILES, reason="no modules were measured yet: bench/trace_modules.py makes the file")
def test_bands_hold_what_was_measured() -> None:
    inside = [e.low <= p.values[1]["time_s"] <= e.high for p in rows() for e in [answer(*p.values).time_s]]
    assert np.mean(inside) >= COVERED


@pytest.mark.skipif(not FILES, reason="no modules were measured yet: bench/trace_modules.py makes the file")
def test_peak_memory() -> None:
    """Of tensors, as PyTorch's allocator counts them; a captured graph keeps a pool of its own."""
    off = {}
    for param in rows():
        chip, row = param.values
        if row["launch"] == "eager":
            tensors = answer(chip, row).memory_bytes.value - RUNTIME_BYTES
            off[param.id] = tensors / row["peak_bytes"] - 1
    assert {name: f"{error:+.0%}" for name, error in off.items() if abs(error) > MEMORY} == {}
