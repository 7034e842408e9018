"""The highest rate of a plan, of short runs and of long ones."""

from __future__ import annotations

import pytest

from gnomon.api.plan import plan_serving


@pytest.mark.heavy
def test_short_runs_find_the_rate_of_long_ones() -> None:
    """A batch of a thousand sequences that still fills is no queue that grows."""
    rates = [
        plan_serving(
            "llama-3.2-1b", fleet="H200:1", rate=2, input=167, output=27, slo="ttft_p90=549ms,tpot_p90=49ms", **short
        ).best.max_rate_per_s
        for short in ({}, {"requests": 2000})
    ]
    assert rates[1] == pytest.approx(rates[0], rel=0.05)
