"""The accuracy we stand by: stored results, the page that shows them, and a part of them computed again.

When predictions or fits are meant to change, run `make accuracy` and commit what it writes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from gnomon.accuracy import deployments, disaggregated_rows, runs, sglang_rows, stored, truth
from gnomon.accuracy.deployment_rows import NEEDED, Unfit
from gnomon.accuracy.operators import operators
from gnomon.accuracy.published import training_steps
from gnomon.accuracy.result import CHECKOUT
from gnomon.accuracy.run_rows import NEEDED as RUN_NEEDED
from gnomon.accuracy.run_rows import run_case_of
from gnomon.accuracy.scores import LeftOut, Row
from gnomon.accuracy.steps import steps
from gnomon.accuracy.tables import MOST_ROWS, measured
from gnomon.calibrate.truth import tables as tables_of
from gnomon.calibrate.usable import LEAST_US, cut, picked, unfit
from gnomon.load import chip as find_chip
from gnomon.report.accuracy import listed, page

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
STALE = "a prediction changed: run `make accuracy`, look at what it changes, and commit it"
NEAR = 1e-3
"""Another machine's arithmetic moves a fit by less."""
LIMITS = {
    ("narayanan-2021-table-1", "step time"): (10, 0.08),
    ("korthikanti-2022-table-5", "step time"): (8, 0.06),
    ("korthikanti-2022-figure-1", "activations"): (8, 0.02),
    ("narayanan-2021-table-2", "step time"): (6, 0.08),
}
"""Rows, and the most their mean error may be."""
MEASURED = {"step time": 0.08, "peak memory": 0.04}
"""The most that any one of our own steps may be off."""
COVERED = 0.8
"""Of all step times, the share that 90% bands must hold: few figures, several of one machine."""
OWN = ("attention_decode", "moe", "scan_prefill_mamba2")
"""Our own tables that are quickly fitted again."""
PUBLISHED = "H100-SXM-80GB vllm 0.24.0 moe bf16"
"""A published one."""
SAMPLE = 5
needs_truth = pytest.mark.skipif(truth.folder() is None, reason="needs the published tables: set GNOMON_TRUTH")


@cache
def kept() -> dict[str, Any]:
    return stored.load()


@cache
def training() -> Row:
    return training_steps(CHECKOUT)


def figures(rows: list[Row]) -> dict[tuple[str, ...], float]:
    names = ("id", "file", "model", "detail", "what")
    return {tuple(str(row.get(name, "")) for name in names): row["predicted"] for row in rows}


def assert_same(now: list[Row], then: list[Row]) -> None:
    assert now
    before = figures(then)
    moved = {key: (before.get(key), value) for key, value in figures(now).items()}
    moved = {key: pair for key, pair in moved.items() if pair[0] is None or abs(pair[1] / pair[0] - 1) > NEAR}
    assert moved == {}, STALE


def test_the_page_and_its_lists_are_those_of_the_stored_results() -> None:
    assert page(kept()) == (DOCS / "accuracy.md").read_text(encoding="utf-8"), "run `make accuracy`"
    for name, text in listed(kept()).items():
        assert text == (DOCS / "accuracy" / name).read_text(encoding="utf-8"), f"{name}: run `make accuracy`"


def test_training_steps_are_what_is_stored() -> None:
    for section in ("published", "measured"):
        assert len(training()[section]) == len(kept()[section])
        for now, then in zip(training()[section], kept()[section], strict=True):
            rows = [[row | {"id": str(place)} for place, row in enumerate(table["rows"])] for table in (now, then)]
            assert len(rows[0]) == len(rows[1])
            assert_same(*rows)


@pytest.mark.slow
def test_steps_are_what_is_stored() -> None:
    now = steps(CHECKOUT)
    assert len(now["rows"]) == len(kept()["steps"]["rows"])
    assert_same(now["rows"], kept()["steps"]["rows"])


def assert_fits_stay(now: list[Row]) -> None:
    names = ("source", "chip", "framework", "version", "kind", "dtype", "rows")
    then = {tuple(row[name] for name in names): row for row in kept()["operators"]["tables"]}
    for row in now:
        before = then[tuple(row[name] for name in names)]
        for name in ("mean_error", "bias", "half_width"):
            assert row[name] == pytest.approx(before[name], rel=0.02, abs=NEAR), f"{STALE}: {row['kind']} {name}"


def test_fits_of_our_own_tables_are_what_is_stored() -> None:
    (folder,) = [path.parent for path in CHECKOUT.glob("h200-*/calibration.csv")]
    tables = [pair for pair in measured(folder, LeftOut()) if pair[0].kind in OWN]
    now = operators(tables, LeftOut())["tables"]
    assert {row["kind"] for row in now} == set(OWN)
    assert_fits_stay(now)


@pytest.mark.slow
@needs_truth
def test_a_fit_of_a_published_table_is_what_is_stored() -> None:
    (table,) = [table for table in tables_of(truth.required(), "moe") if table.name.startswith(PUBLISHED)]
    chip = find_chip(table.chip)
    assert unfit(table, chip) == ""
    long = picked(table, np.flatnonzero(table.columns["time_us"] >= LEAST_US))
    now = operators([(cut(long, MOST_ROWS), chip)], LeftOut())["tables"]
    assert len(now) == 1
    assert_fits_stay(now)


@needs_truth
def test_some_deployments_are_what_is_stored() -> None:
    folder, then = truth.required(), kept()["deployments"]["rows"]
    every = truth.rows(folder / truth.SERVING, NEEDED)
    rows = {row["row_id"]: row for row in every if row["mode"] != disaggregated_rows.MODE}
    few = sorted({row["id"] for row in then if row["clients"] <= 32} & rows.keys())
    chosen = few[:: max(1, len(then) // SAMPLE // 2)][:SAMPLE]
    now = [one for name in chosen for one in deployments.compare_any(deployments.published_case(rows[name]))]
    assert {row["id"] for row in now} == set(chosen)
    assert_same(now, then)


@needs_truth
def test_some_runs_are_what_is_stored() -> None:
    folder, then = truth.required(), kept()["runs"]["rows"]
    chosen = sorted({row["id"] for row in then})[:: max(1, len(then) // SAMPLE // 4)]
    now = []
    with TemporaryDirectory() as home:
        for row in truth.rows(folder / truth.TRAINING, RUN_NEEDED):
            if row["id"] in chosen:
                now += runs.compare(run_case_of(row), Path(home))
    assert len(chosen) >= SAMPLE
    assert_same(now, then)


@needs_truth
def test_every_published_row_is_compared_or_counted() -> None:
    """Of the serving rows each is usable or left out; what the simulator refuses is left out of those sampled."""
    folder, found = truth.required(), kept()["deployments"]
    served = sglang_rows.runs(CHECKOUT)
    usable = sum(not run.reject_reason for run in served)
    for row in (rows := truth.rows(folder / truth.SERVING, NEEDED)):
        try:
            usable += bool(deployments.published_case(row))
        except Unfit:
            continue
    refused = sum(row["rows"] for row in found["left_out"] if row["why"].startswith("refused"))
    left = sum(row["rows"] for row in found["left_out"]) - refused
    contradicted = sum(row["rows"] for row in found["left_out"] if "contradict" in row["why"])
    assert (usable - contradicted, found["usable"] + left) == (found["usable"], len(rows) + len(served))


@needs_truth
def test_stored_results_are_of_the_data_at_hand() -> None:
    now = {path.name: truth.checksum(path) for path in truth.files(truth.required())}
    assert {row["file"]: row["sha256"] for row in kept()["truth"]} == now, "the data changed: run `make accuracy`"


@pytest.mark.parametrize(("name", "what"), LIMITS)
def test_published_tables(name: str, what: str) -> None:
    (table,) = [table for table in training()["published"] if table["name"] == name]
    (found,) = [summary for summary in table["summaries"] if summary["what"] == what]
    rows, limit = LIMITS[name, what]
    assert found["rows"] == rows
    assert found["mean_error"] <= limit


@pytest.mark.parametrize("what", MEASURED)
def test_our_own_steps(what: str) -> None:
    rows = [row for table in training()["measured"] for row in table["rows"] if row["what"] == what]
    assert len(rows) >= 10
    assert [row for row in rows if abs(row["error"]) > MEASURED[what]] == []


def test_bands_hold_what_was_measured() -> None:
    held = [
        row["inside"]
        for table in (*training()["published"], *training()["measured"])
        for row in table["rows"]
        if row["inside"] is not None
    ]
    assert len(held) >= 30
    assert sum(held) >= COVERED * len(held)
