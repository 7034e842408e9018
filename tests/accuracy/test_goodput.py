"""Effective training time of published runs, with Llama 3's rate of failures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gnomon.accuracy.goodput import goodput_rows
from gnomon.catalog.failures import DEFAULT, failure_rate, published_runs

KNOWN = {"read", "derived", "assumed"}
RECOVERY = {"detection_s", "restart_s", "interval_s", "stall_s"}


def test_what_operators_report_is_within_three_points() -> None:
    rows = [row for row in goodput_rows() if row.run.kind != "derived"]
    assert {row.run.name for row in rows} == {"rsc-1", "megascale", "byterobust"}
    assert all(row.within for row in rows)


def test_the_run_that_the_rate_is_from_is_kept_out() -> None:
    assert DEFAULT not in {row.run.name for row in goodput_rows()}
    assert DEFAULT in {row.run.name for row in goodput_rows("rsc-1")}


def test_a_miss_has_its_cause() -> None:
    for row in goodput_rows():
        assert row.within or "None of that is in a prediction." in row.run.note


def test_the_guide_has_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    for row in goodput_rows():
        name = row.run.title.partition(",")[0].partition(" 176B")[0]
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {name}")]
        assert f"| {row.predicted:.1%} |" in line


def test_every_figure_says_how_it_is_known() -> None:
    for run in published_runs():
        assert set(run.known.values()) <= KNOWN
        assert {"failures", "per_1000_node_days"} & set(run.known) or not run.per_gpu_hour
        assert ("effective" in run.known) == (run.effective is not None)
        assert set(run.recovery) == set(run.known) & RECOVERY
        assert run.source


def test_only_what_a_source_says_is_called_read() -> None:
    """MegaScale gives no checkpoint interval, RSC-1 no time to detect and a range of restarts, ByteRobust no step."""
    known = {run.name: run.known for run in published_runs()}
    assert {known["megascale"][name] for name in ("interval_s", "stall_s")} == {"assumed"}
    assert (known["rsc-1"]["restart_s"], known["rsc-1"]["detection_s"]) == ("derived", "assumed")
    assert known["byterobust"]["interval_s"] == "assumed"
    for run in published_runs():
        told = {name for name, seconds in run.recovery.items() if run.known[name] == "read" and not seconds}
        assert not told, "no source says that something takes no time"


def test_rates_per_gpu() -> None:
    """419 failures of 16,384 GPUs in 54 days are one in 50,677 GPU hours; 6.5 in 1,000 node-days one in 29,538."""
    assert 1 / failure_rate("default").per_gpu_hour == pytest.approx(50_677, rel=1e-4)
    assert 1 / failure_rate("rsc-1").per_gpu_hour == pytest.approx(29_538, rel=1e-4)


def test_the_spread_is_what_the_published_rates_differ_by() -> None:
    rates = [run.per_gpu_hour for run in published_runs() if run.per_gpu_hour]
    spread = failure_rate(DEFAULT).spread
    assert 0 < spread < math.log(max(rates) / min(rates))
