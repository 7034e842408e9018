"""Laws of parallel degrees: every layout that is allowed has a time, and more work never takes less of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.estimates import check_band

import gnomon
from gnomon.cost.gemm import LEVEL
from gnomon.errors import InputError


@pytest.mark.heavy
@settings(max_examples=20, deadline=None)
@given(
    model=st.sampled_from(["qwen3-30b-a3b", "mixtral-8x7b", "llama-3.1-8b"]),
    chip=st.sampled_from(["H100", "H200", "A100-SXM-80GB", "MI300X"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.integers(1, 5),
    dp=st.sampled_from([1, 2, 4, 8]),
    spread=st.booleans(),
    batch=st.integers(1, 60),
    phase=st.sampled_from(["decode", "prefill"]),
)
def test_allowed_layouts(
    model: str, chip: str, tp: int, pp: int, dp: int, spread: bool, batch: int, phase: str
) -> None:
    degrees = {"tp": tp, "pp": pp, "dp": dp, "ep": tp * dp if spread else 1}
    words = {"phase": phase, "settings": {"max_model_len": 4096}} | degrees
    words |= {"tokens": 700} if phase == "prefill" else {"context": 1000}
    try:
        one = gnomon.predict(model, on=f"{chip}:{tp * pp * dp}", batch=batch * dp, **words)
    except InputError as error:
        assert error.hint
        return
    more = gnomon.predict(model, on=f"{chip}:{tp * pp * dp}", batch=2 * batch * dp, **words)
    check_band(one.time_s)
    assert more.time_s.value >= one.time_s.value * (1 - LEVEL)
    for figure in (one.energy_j.value, one.cost_usd.value, one.tokens_per_s):
        assert 0 < figure < math.inf
    if pp > 1:
        pipeline = one.parallel["pipeline"]
        assert len(pipeline["stage_s"]) == pp
        assert pipeline["busiest_stage_s"] <= one.time_s.value * (1 + 1e-9)
    if spread and tp * dp > 1:
        assert one.parallel["experts"]["busiest_over_mean"] >= 1
