"""Goals, series and gaps between tokens of pools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.sim.serving.gaps import RESOLUTION

LOAD: dict[str, Any] = {
    "rate": 9.0,
    "input": 700,
    "output": 60,
    "requests": 240,
    "slo": "ttft_p90=60ms,tpot_p90=40ms",
    "series": True,
}


def test_a_pool_of_one_replica_says_what_the_replica_says() -> None:
    alone = gnomon.simulate_serving("llama-3.1-8b", on="H200", **LOAD)
    pool = gnomon.simulate_serving("llama-3.1-8b", pools=["H200:1"], **LOAD)
    assert [one["met"] for one in pool.goals] == [one["met"] for one in alone.goals]
    assert pool.goodput_rps == pytest.approx(alone.goodput_rps)
    assert pool.goodput_share == alone.goodput_share
    assert pool.itl_s == pytest.approx(alone.itl_s, rel=RESOLUTION)  # arrivals cut spans of equal steps elsewhere
    assert pool.step_shares == pytest.approx(alone.step_shares)
    assert pool.distributions.keys() == alone.distributions.keys()
    assert pool.series.keys() == alone.series.keys()
    for name, values in alone.series.items():
        mine, theirs = _floats(pool.series[name]), _floats(values)
        np.testing.assert_allclose(mine, theirs, atol=0.02 * np.nanmax(theirs), err_msg=name)  # along a line in a span
        assert np.nanmean(mine) == pytest.approx(np.nanmean(theirs), rel=2e-3), name


@pytest.mark.parametrize("pools", [["H200:3,tp=1"], ["prefill=H200:2,tp=1", "decode=H200:1"], ["H200:1", "H100:1"]])
def test_series_of_pools_sum_to_their_totals(pools: list[str]) -> None:
    _sums_to_its_totals(gnomon.simulate_serving("llama-3.1-8b", pools=pools, **LOAD))


@pytest.mark.heavy
@pytest.mark.parametrize(("model", "degrees"), [("llama-3.1-8b", {"pp": 2}), ("qwen3-30b-a3b", {"dp": 2, "ep": 2})])
def test_series_of_stages_and_ranks_sum_to_their_totals(model: str, degrees: dict[str, Any]) -> None:
    _sums_to_its_totals(gnomon.simulate_serving(model, on="H200:2", **degrees, **LOAD))


@pytest.mark.heavy
@pytest.mark.parametrize("degrees", [{"tp": 2}, {"pp": 2}])
def test_a_power_limit_acts(degrees: dict[str, Any]) -> None:
    busy = LOAD | {"rate": 40.0}
    free, held = (
        gnomon.simulate_serving("llama-3.1-8b", on="H200:2", power_limit_w=watts, **degrees, **busy)
        for watts in (700, 300)
    )
    assert held.power_w <= 2 * 300
    assert held.power_w < free.power_w
    assert held.run.clock_slowdown > free.run.clock_slowdown
    assert held.run.tpot_s.mean() > free.run.tpot_s.mean()


def _sums_to_its_totals(found: Any) -> None:
    (width,) = found.series["bin_s"]
    assert width is not None
    made = found.run.requests.output_tokens.sum()
    assert _floats(found.series["output_tokens_per_s"]).sum() * width == pytest.approx(float(made))
    assert _floats(found.series["arrivals_per_s"]).sum() * width == pytest.approx(240)
    assert _floats(found.series["power_w"]).mean() == pytest.approx(found.power_w, rel=1e-6)
    assert sum(found.step_shares.values()) == pytest.approx(1.0)
    assert _floats(found.series["prefill_share"]).mean() == pytest.approx(found.step_shares["prefill"])
    met = found.run.ttft_s <= 0.06
    assert found.goodput_share == pytest.approx(float((met & ~(found.run.tpot_s > 0.04)).mean()))
    gaps = (found.run.finish_s - found.run.first_token_s).sum() / (made - 240)
    assert found.itl_s["mean"] == pytest.approx(float(gaps), rel=1e-6)


def _floats(values: Any) -> Any:
    return np.array([np.nan if value is None else value for value in values])
