"""A goal that lies inside the interval of its figure is said to be unsure, in text, JSON and page."""

from __future__ import annotations

from typing import Any

import pytest

import gnomon
from gnomon.planning.serving.goals import of_plan, with_bands
from gnomon.report.html import page_of
from gnomon.spec import Goal

LOAD: dict[str, Any] = {"rate": 4, "input": 400, "output": 40}
UNSURE = "at the central estimate, its interval crosses it"


def limits(value: float, low: float, high: float) -> dict[str, tuple[float, bool, bool]]:
    """Limits around an interval: whether the figure meets each, and whether the interval crosses it."""
    return {
        "below": (0.9 * low, False, False),
        "beyond the figure": ((low + value) / 2, False, True),
        "inside": ((value + high) / 2, True, True),
        "above": (1.1 * high, True, False),
    }


@pytest.mark.heavy
@pytest.mark.parametrize("pooled", [False, True])
def test_a_simulated_load(pooled: bool) -> None:
    on: dict[str, Any] = {"on": "H100"} if not pooled else {"pools": ["H100:2"]}
    plain = gnomon.simulate_serving("llama-3.2-1b", requests=200, **on, **LOAD)
    value, (low, high) = plain.tpot_s["p90"], plain.bands["tpot_s"]["p90"]
    assert low is not None and high is not None
    for limit, met, crosses in limits(value, low, high).values():
        asked = f"tpot_p90={limit * 1e3:.9f}ms"
        found = gnomon.simulate_serving("llama-3.2-1b", requests=200, slo=asked, **on, **LOAD)
        (one,) = found.to_dict()["goals"]
        assert (one["met"], one["crosses"]) == (met, crosses)
        assert (one["low_s"], one["high_s"]) == pytest.approx((low, high))
        assert (UNSURE in str(found)) == (UNSURE in str(page_of(found))) == crosses
        assert (f"{'inside' if met else 'beyond'} the goal {UNSURE}" in str(found)) == crosses


@pytest.mark.heavy
def test_a_plan() -> None:
    ask = {"fleet": "H100:1", "requests": 400, "dtypes": ["bf16"]} | LOAD
    fixed = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
    loose = gnomon.plan_serving("llama-3.2-1b", slo="tpot_p90=1s", settings=fixed, **ask)
    (one,) = loose.to_dict()["goal_results"]
    assert one["met"] and not one["crosses"] and UNSURE not in str(loose)
    near = (one["value_s"] + one["high_s"]) / 2
    tight = gnomon.plan_serving("llama-3.2-1b", slo=f"tpot_p90={near * 1e3:.9f}ms", settings=fixed, **ask)
    assert tight.goal_results[0]["crosses"]
    assert str(tight).count(f"inside the goal {UNSURE}") == 1 and UNSURE in str(page_of(tight))


def test_figures_without_an_interval_cross_nothing() -> None:
    goal = Goal(metric="tpot", statistic="p90", limit_s=0.04)
    (one,) = of_plan([goal], {"tpot_s": {"p90": 0.05}}, {})
    assert one == {"goal": "tpot_p90", "limit_s": 0.04, "value_s": 0.05, "met": False, "crosses": False}
    (other,) = of_plan([goal], {"tpot_s": {}}, {})  # requests of one token have none
    assert other["met"] and not other["crosses"]
    assert with_bands([one], {"tpot_s": {"p90": (None, None)}}) == (one,)
