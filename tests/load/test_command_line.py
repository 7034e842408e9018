"""Fleets, goals and settings as they are typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import load
from gnomon.spec import Goal
from gnomon.spec.workload import METRICS, STATISTICS


def test_pools() -> None:
    assert load.parse_pool("H100").count == 1
    pool = load.parse_pool(" h100 : 4 ")
    assert (pool.chip.name, pool.count, pool.per_node) == ("H100-SXM-80GB", 4, 4)
    assert load.parse_pool("H200:16").per_node == 8
    assert load.parse_pool("H200:1k").count == 1000


def test_fleets() -> None:
    fleet = load.parse_fleet("H100:16, H200:4")
    assert [(pool.chip.name, pool.count) for pool in fleet.pools] == [("H100-SXM-80GB", 16), ("H200-SXM-141GB", 4)]
    assert fleet.count == 20


def test_goals() -> None:
    assert load.parse_goals("ttft_p90=1s, TPOT_p90 = 40ms") == (Goal("ttft", "p90", 1.0), Goal("tpot", "p90", 0.04))
    assert load.parse_goals("") == ()


@given(st.dictionaries(st.tuples(st.sampled_from(METRICS), st.sampled_from(STATISTICS)), st.integers(1, 10**6)))
def test_goals_come_back(limits: dict[tuple[str, str], int]) -> None:
    goals = tuple(Goal(metric, statistic, float(limit)) for (metric, statistic), limit in limits.items())
    assert load.parse_goals(",".join(f"{goal.name}={goal.limit_s:.0f}s" for goal in goals)) == goals


@pytest.mark.parametrize(
    ("text", "value"),
    [("256", 256), ("0.9", 0.9), ("true", True), ("False", False), ("none", None), ("fp8", "fp8"), ("", "")]
    + [("[1, 2]", [1, 2]), ('{"a": 1}', {"a": 1}), ("a=b", "a=b"), ("1e3", 1000.0), ("NaN", "NaN"), ('"12"', "12")],
)
def test_settings_have_types(text: str, value: object) -> None:
    found = load.parse_settings([f"key={text}"])["key"]
    assert found == value
    assert type(found) is type(value)


def test_a_pasted_flag_is_a_setting() -> None:
    assert load.parse_settings(["--max-num-seqs=8", "x.y=1"]) == {"max_num_seqs": 8, "x.y": 1}
