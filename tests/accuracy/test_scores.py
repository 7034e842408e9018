"""Errors become summaries; what is left out is counted by reason."""

from __future__ import annotations

import pytest

from gnomon.accuracy.scores import LeftOut, Row, compare_all, compared, reason, rounded, summaries, tabulated
from gnomon.errors import InputError


def test_a_figure() -> None:
    row = compared("step time", "s", 2.0, 2.2, (1.9, 2.1))
    assert row["error"] == pytest.approx(0.1)
    assert row["inside"] is True
    assert compared("step time", "s", 2.2, 2.0, (1.9, 2.1))["inside"] is False
    assert compared("memory", "bytes", 1.0, 1.0, None)["inside"] is None


def test_summaries() -> None:
    rows = [
        compared("time", "s", 1.0, 1.02, (0.9, 1.1)),
        compared("memory", "bytes", 1.0, 1.5, None),
        compared("time", "s", 1.0, 0.96, (0.95, 0.99)),
    ]
    time, memory = summaries(rows)
    assert (time["what"], memory["what"]) == ("time", "memory")
    assert (time["rows"], time["banded"], time["inside"]) == (2, 2, 1)
    assert (time["mean_error"], time["bias"], time["worst"]) == pytest.approx((0.03, -0.01, -0.04))
    assert (time["median_error"], time["p90_error"]) == pytest.approx((0.03, 0.038))
    assert time["half_width"] == pytest.approx((0.1 / 1.02 + 0.02 / 0.96) / 2)
    assert (memory["banded"], memory["inside"], memory["half_width"]) == (0, 0, None)


def test_groups_of_several_columns() -> None:
    rows = [compared("time", "s", 1.0, 1.0, None) | {"chip": chip} for chip in ("a", "b", "a")]
    assert [(row["chip"], row["rows"]) for row in summaries(rows, ("chip", "what"))] == [("a", 2), ("b", 1)]


def test_what_is_left_out_is_counted_by_reason() -> None:
    left = LeftOut()
    for message in ("32 ranks cannot be cut in 5", "64 ranks cannot be cut in 7"):
        left.add("x", reason(InputError(message)))
    left.add("y", "no engine", 5)
    assert left.listed() == [
        {"source": "y", "why": "no engine", "rows": 5},
        {"source": "x", "why": "N ranks cannot be cut in N", "rows": 2},
    ]


def test_kept_numbers_have_five_digits() -> None:
    assert rounded({"a": [1.2345678, {"b": 123456.7}], "c": "1.2345678"}) == {
        "a": [1.2346, {"b": 123460.0}],
        "c": "1.2345678",
    }


def test_groups_in_order() -> None:
    named = (("b", "time"), ("a", "memory"), ("b", "memory"))
    rows = [compared(what, "s", 1.0, 1.0, None) | {"group": group} for group, what in named]
    found = tabulated(rows, ("a", "b"), ("group",))
    assert [(row["group"], row["what"]) for row in found["totals"]] == [("a", "memory"), ("b", "time"), ("b", "memory")]
    assert [(row["group"], row["rows"]) for row in found["summaries"]] == [("a", 1), ("b", 2)]
    assert found["rows"] == rows


def _halved(case: int) -> list[Row]:
    if case == 3:
        raise InputError("3 is odd, as are 5 and 7")
    return [{"case": case}, {"case": case / 2}]


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_compare_what_one_does(jobs: int) -> None:
    left = LeftOut()
    rows = compare_all([1, 2, 3, 4], _halved, lambda case: f"source {case}", left, None, jobs)
    assert [row["case"] for row in rows] == [1, 0.5, 2, 1, 4, 2]
    assert left.listed() == [{"source": "source 3", "why": "refused: N is odd, as are N and N", "rows": 1}]
