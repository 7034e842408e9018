"""Filters keep what concerns one chip, framework or family, and make its summaries again."""

from __future__ import annotations

import pytest

from gnomon.accuracy import accuracy, stored, truth
from gnomon.errors import CalibrationError, InputError


def test_one_chip() -> None:
    found = accuracy(chip="h100")
    assert {row["chip"] for row in found.operators["tables"]} == {"H100-SXM-80GB"}
    assert {row["chip"] for row in found.deployments["rows"]} == {"H100-SXM-80GB"}
    assert sum(row["rows"] for row in found.deployments["totals"]) == len(found.deployments["rows"])
    assert sum(row["rows"] for row in found.operators["families"]) == sum(
        row["rows"] for row in found.operators["tables"]
    )
    assert found.published == ()


def test_one_family() -> None:
    found = accuracy(family="attention")
    assert {row["kind"] for row in found.operators["tables"]} >= {"attention_decode", "attention_prefill"}
    assert all(row["kind"].startswith("attention") for row in found.unseen_chips)
    assert found.deployments["rows"] == []


def test_one_framework() -> None:
    found = accuracy(framework="torch")
    assert {row["framework"] for row in found.operators["tables"]} == {"torch"}
    assert {row["engine"].partition("@")[0] for row in found.runs["rows"]} == {"torch"}
    assert found.deployments["rows"] == []
    assert found.measured


def test_one_number_format() -> None:
    found = accuracy(dtype="FP8")
    rows = [*found.operators["tables"], *found.unseen_chips, *found.deployments["rows"], *found.runs["rows"]]
    assert {row["dtype"] for row in rows} == {"fp8"}
    assert all(" fp8" in row["source"] for row in found.operators["left_out"])
    assert found.published == ()


def test_stored_results_are_all_there() -> None:
    found = accuracy().to_dict()
    assert found["schema"] == stored.SCHEMA
    assert {row["file"] for row in found["truth"]} >= {truth.SERVING, truth.TRAINING}
    assert not found["quick"], "results of a hurry are not to be stored: run `make accuracy`"


def test_results_of_another_kind_are_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "results.json"
    path.write_text('{"schema": "gnomon.accuracy/2"}')
    with pytest.raises(CalibrationError, match=r"gnomon\.accuracy/2"):
        stored.load(path)


def test_data_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("GNOMON_TRUTH", str(tmp_path))
    with pytest.raises(InputError, match="are not in"):
        accuracy(fresh=True)


def test_a_table_without_a_column(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    assert truth.rows(path, ("a", "b")) == [{"a": "1", "b": "2"}]
    with pytest.raises(CalibrationError, match="no column c"):
        truth.rows(path, ("a", "c"))
