"""Intervals are counted by engine and version, and tested against the share they promise."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.accuracy.coverage import LEAST_ROWS, binomial_p, coverage
from gnomon.accuracy.deployment_rows import OLD, RECENT
from gnomon.accuracy.scores import Row, compared


def test_the_binomial_test_is_that_of_tables() -> None:
    assert binomial_p(9, 10) == pytest.approx(1.0)
    assert binomial_p(2700, 3000) == pytest.approx(1.0)
    assert binomial_p(0, 1) == pytest.approx(0.1)
    assert binomial_p(2, 2, 0.5) == pytest.approx(0.5)
    assert binomial_p(14, 20) == pytest.approx(0.01125, abs=1e-5)  # scipy.stats.binomtest(14, 20, 0.9)
    assert binomial_p(31, 31) == pytest.approx(0.06872, abs=1e-5)  # scipy.stats.binomtest(31, 31, 0.9)


def row(measured: float, **about: Any) -> Row:
    return about | compared("TPOT", "s", measured, 1.0, (0.8, 1.2))


def found(**changes: Any) -> dict[str, Any]:
    sections: dict[str, Any] = {name: {"rows": []} for name in ("steps", "deployments", "runs")}
    return sections | {"published": [], "measured": []} | changes


def test_small_groups_count_in_the_pooled_line_only() -> None:
    many = [row(1.0 + 0.4 * (place % 4 == 0), engine="torch") for place in range(LEAST_ROWS)]
    few = [row(1.1, engine="megatron@3.0")]
    pooled, torch = coverage(found(runs={"rows": many + few}))
    assert (pooled["banded"], pooled["inside"]) == (LEAST_ROWS + 1, 16)
    assert (torch["engine"], torch["what"], torch["banded"], torch["inside"]) == ("torch", "TPOT", LEAST_ROWS, 15)
    assert torch["p_value"] == binomial_p(15, LEAST_ROWS)
    assert torch["half_width"] == pytest.approx(0.2)


def test_versions_are_apart_and_the_first_years_of_vllm_are_not_counted() -> None:
    recent = [row(1.0, group=RECENT, engine_version=version) for version in ("0.19", "0.24") for _ in range(LEAST_ROWS)]
    old = [row(3.0, group=OLD, engine_version="0.2") for _ in range(LEAST_ROWS)]
    lines = coverage(found(deployments={"rows": recent + old}))
    assert [line["engine"] for line in lines] == ["all", "vllm 0.19", "vllm 0.24"]
    assert lines[0]["banded"] == 2 * LEAST_ROWS


def test_rows_without_an_interval_are_not_counted() -> None:
    assert coverage(found(steps={"rows": [{"engine": "vllm", **compared("KV", "bytes", 1.0, 1.0, None)}]})) == []
