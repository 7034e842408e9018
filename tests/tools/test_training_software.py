"""Published training runs beside the shared tables: every row can be compared, and both halves have some of each."""

from __future__ import annotations

import csv
from collections import Counter
from typing import Any

import pytest
from tools.training_software import NORMAL_95, PUBLISHED, _pairs, shortest
from tools.transformers_cases import CASES

from gnomon.accuracy.run_rows import NEEDED, kept_out, run_case_of
from gnomon.load import model as load_model

FILES = sorted(PUBLISHED.glob("*.csv"))
USUAL = {"confidence": "read", "good_for": "timing"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_row_can_be_compared(path: Any) -> None:
    with path.open(encoding="utf-8") as file:
        rows = [dict.fromkeys(NEEDED, "") | USUAL | row for row in csv.DictReader(file)]
    found = [run_case_of(row) for row in rows]
    assert len({case.row["id"] for case in found}) == len(rows)
    assert all(case.assumed == () for case in found)
    halves = Counter(kept_out(case.row["id"]) for case in found)
    assert min(halves.values()) > 0.4 * len(rows)


def test_pairs_count_where_they_differ() -> None:
    """Of three runs of one plan's kind, two take nearly as long; the third is slower, and once predicted so."""
    common = dict.fromkeys(("source", "model", "chip", "chips", "seq", "global_batch"), "")
    rows = [
        common | {"measured": measured, "predicted": predicted}
        for measured, predicted in ((100, 9), (101, 7), (120, 8))
    ]
    assert sorted(_pairs(rows)) == [False, True]


def test_the_shortest_interval_leaves_out_what_lies_farthest() -> None:
    """Nine of ten, with 0 inside whatever they are."""
    logs = [-0.05, -0.02, -0.01, 0.0, 0.01, 0.02, 0.03, 0.04, 0.1, 0.5]
    assert shortest(logs) == (round(0.05 / NORMAL_95, 3), round(0.1 / NORMAL_95, 3))
    assert shortest([0.1 + 0.01 * place for place in range(10)]) == (0.0, round(0.18 / NORMAL_95, 3))


def test_cases_at_the_edge_are_even() -> None:
    """As many fit as do not, and no model is in both parts."""
    parts = Counter((case.part, case.kind) for case in CASES)
    assert parts["fit", "edge"] == parts["check", "edge"] == 7
    models = {part: {case.model for case in CASES if case.part == part} for part in ("fit", "check")}
    assert not models["fit"] & models["check"]
    assert all(case.seq <= load_model(case.model).max_context for case in CASES)
