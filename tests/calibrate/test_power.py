"""Watts and the clock's law found again from loads that follow it, and those that were measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from gnomon import catalog
from gnomon.calibrate.power import PowerLoad, board, loads
from gnomon.calibrate.table import read_rows
from gnomon.cost import clock
from gnomon.errors import CalibrationError
from tools import ship

MEASURED = Path(__file__).parents[2] / "measurements" / "h200-2026-11-15"
H200 = catalog.chip("H200")
LAW = {
    "idle_w": H200.idle_w, "active_w": 130.0, "j_per_flop": 0.9e-12, "j_per_byte": 1.1e-10, clock.LIMIT: 0.98,
    clock.BURST: 0.9e-12, clock.BUSY: 420.0,
}  # fmt: skip
REST = PowerLoad(name="rest", narrow=False, burst_s=1, seconds=1, watts=130.0, flops=0, bytes=0, busy=0)


def load(name: str, flops: float, moved: float, burst_s: float, busy: float = 1.0) -> PowerLoad:
    """What a board under the law would show of one work."""
    each = clock.attention_joules(LAW, H200, flops, burst_s) if name == "attention" else LAW[clock.BURST] * flops
    joules, pause = float(each) + LAW["j_per_byte"] * moved, burst_s * (1 / busy - 1)
    parts = {"compute_s": burst_s, "compute_j": joules, "other_s": pause, "other_j": 0.0}
    slow = float(clock.slowdown(LAW, H200, **{key: np.array([value]) for key, value in parts.items()})[0])
    slow = slow if flops else 1.0
    energy = (joules + LAW["active_w"] * burst_s) / slow + LAW["active_w"] * pause
    watts = energy / (slow * burst_s + pause)
    return PowerLoad(
        name=name, narrow=False, burst_s=burst_s, seconds=slow * burst_s, watts=watts, flops=flops, bytes=moved,
        busy=busy,
    )  # fmt: skip


LOADS = [
    REST,
    load("gemm large", 1.1e12, 4e8, 1.4e-3),
    load("gemm small", 2e9, 6e6, 6e-6),
    load("gemm thin", 2e9, 2.7e8, 6.6e-5),
    load("gemm large", 1.1e12, 4e8, 1.4e-3, busy=0.4),
    load("copy", 0, 1e9, 4e-4),
    load("attention", 5.5e11, 3e8, 9e-4),
    load("attention", 5.5e11, 5e8, 1.7e-3),
]


def test_the_law_is_found() -> None:
    found = board(LOADS, H200)
    assert {name: found.figures[name] for name in LAW} == pytest.approx(LAW, rel=0.01)
    assert found.held_out["time"] < 0.03
    assert clock.NARROW not in found.figures


def test_a_board_below_its_limit_says_nothing_of_it() -> None:
    cool = [one for one in LOADS if one.seconds < 1.01 * one.burst_s]
    found = board(cool, H200).figures
    assert not set(clock.KEYS) & set(found)
    assert found["j_per_byte"] == pytest.approx(LAW["j_per_byte"], rel=0.05)


def test_without_a_rest_the_limit_is_shared_out() -> None:
    found = board(LOADS[1:], H200).figures
    assert found["j_per_flop"] * H200.rate(H200.half) + found["active_w"] == pytest.approx(H200.tdp_w)


def test_narrow_products_have_a_figure_of_their_own() -> None:
    narrow = replace(load("gemm narrow", 1.1e12, 3e8, 1.4e-3), narrow=True)
    found = board([*LOADS, replace(narrow, burst_s=0.7e-3, seconds=narrow.seconds / 2, watts=narrow.watts)], H200)
    assert 0.9 < found.figures[clock.NARROW] < 1.1


@pytest.mark.parametrize("name", ["watts", "flops", "time_us"])
def test_what_is_no_number_is_refused(name: str) -> None:
    row = {"op": "sustained", "kernel": "gemm", "dtype": "bf16", "time_us": "5", "watts": "400", "flops": "1"}
    with pytest.raises(CalibrationError, match=name):
        loads([row | {"bytes": "3", name: "x"}])


def test_loads_of_one_value_or_of_a_cache_are_left_out() -> None:
    found = [one.name for one in loads(read_rows(MEASURED / "power.csv"))]
    assert "add tiny" in found and "spin" in found
    assert not {"fill", "add in l2", "gemm zeros 8192x8192x8192"} & set(found)


def test_measured_work_is_foretold() -> None:
    """Of the H200, on kinds of work that the fit has not seen; what ships is what was measured."""
    made = ship.board_of(MEASURED, H200)
    assert made["power_held_out"]["watts"] < 0.06
    assert made["power_held_out"]["time"] < 0.03
    shipped = yaml.safe_load((ship.PROFILES / "h200-sxm-141gb.yaml").read_text())
    assert made["power"] == pytest.approx(shipped["power"], rel=1e-3)
