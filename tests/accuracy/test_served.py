"""Served loads that we measured, read again and simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gnomon.accuracy.served import PATTERN, _load, read

FOLDER = Path(__file__).parents[2] / "measurements" / "h200-2026-11-18"


def test_times_are_read_from_stages() -> None:
    each = {
        "arrival_us": [1_000_000, 0], "queued_us": [2000, 1000], "scheduled_us": [1000, 2000],
        "made_us": [20000, 10000], "first_us": [3000, 1000], "finish_us": [200_000, 100_000],
        "input_tokens": 64, "output_tokens": 11,
    }  # fmt: skip
    clock = np.arange(99.0, 103.0, 0.04)
    power = {"monotonic_s": clock, "energy_j": 650.0 * clock, "sm_mhz": np.where(clock < 100, 2000.0, 1000.0)}
    given = {"name": "gamma", "rate_per_s": 2.0, "cv": 3, "requests": 2, "begin_s": 100.0, "wall_s": 1.2, "each": each}
    load = _load(given, power)
    assert load.title == "gamma 2 requests/s, cv 3"
    assert load.requests.arrival_s.tolist() == [0.0, 1.0]
    assert load.figures["TTFT p50"] == pytest.approx(0.02)
    assert load.figures["TPOT p90"] == pytest.approx(0.019)
    assert load.figures["power"] == pytest.approx(650.0)
    assert load.figures["clock slowdown"] == pytest.approx(2.0)


def test_a_measured_load_is_simulated_with_its_interval() -> None:
    found = read(FOLDER / "server-qwen2.5-14b-second-card.json.gz")
    rows = replace(found, loads=found.loads[:1]).rows()
    assert {row["what"] for row in rows} >= {"served load, TPOT p50", "served load, power", "served load, wall"}
    assert all(row["low"] <= row["predicted"] <= row["high"] and row["measured"] > 0 for row in rows)


def test_all_files_are_read() -> None:
    found = [read(path) for path in sorted(FOLDER.glob(PATTERN))]
    assert sum(len(one.loads) for one in found) == 23
    (short,) = [one for one in found if not one.loads]
    assert short.rows() == []
    assert {one.dtype for one in found} == {"bf16", "fp8"}
