"""Experts in host memory: shares of three lanes against a search, hits against drawn visits, bytes by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.cost.host_link import HANDOVER_S
from gnomon.errors import InputError
from gnomon.graph.host_ops import HostExperts, HostRates, shared_out
from gnomon.graph.ops import TOKENS, Experts
from gnomon.spec import Batch

MODEL, ON = "qwen1.5-moe-a2.7b", "H100"
RATES = HostRates(link_bytes_s=25e9, cpu_bytes_s=50e9, cpu_flops_s=1e12, handover_s=HANDOVER_S)
EXPERTS = Experts(name="ffn.experts", tokens=TOKENS, hidden=2048, inner=1408, experts=60, topk=4, dtype="bf16")


def offloaded(**words: Any) -> HostExperts:
    usual = {"cached": 20, "skew": 0.6, "popular": True, "copied": True, "computed": True}
    return HostExperts(name="ffn.experts", op=EXPERTS, rates=RATES, **(usual | words))


def step_s(words: str, **more: Any) -> float:
    load = {"phase": "decode", "batch": 1, "context": 100} | more
    return gnomon.predict(MODEL, on=ON, techniques=[f"expert-offload:{words}"], **load).time_s.value


def test_missed_experts_are_shared_out_as_a_search_would() -> None:
    """No share of a fine grid ends sooner by more than the grid is coarse."""
    rng, op = np.random.default_rng(3), offloaded()
    chip, more, copied, computed = (rng.uniform(1e-4, 1e-2, 200) for _ in range(4))
    found = shared_out(chip, more, copied, computed, op)
    grid = np.linspace(0.0, 1.0, 2001)[:, None]
    late = np.where(grid < 1, HANDOVER_S, 0.0)
    ends = np.maximum.reduce([chip + grid * more, grid * copied, (1 - grid) * computed + late])
    best = ends.min(axis=0)
    assert (found <= best + HANDOVER_S).all() and (found >= best - 2e-5).all()


def test_ways_that_are_closed_are_not_taken() -> None:
    sizes = tuple(np.array([each]) for each in (1e-3, 2e-3, 9e-3, 4e-3))
    assert shared_out(*sizes, offloaded(computed=False)) == pytest.approx(9e-3)
    assert shared_out(*sizes, offloaded(copied=False)) == pytest.approx(4e-3 + HANDOVER_S)


def test_misses_are_what_drawn_visits_come_to() -> None:
    """Each token takes each expert with its probability; the drawn ones that are not cached are counted."""
    from gnomon.graph.popularity import visit_shares

    rng, tokens = np.random.default_rng(7), 24
    chances = np.array(visit_shares(60, 4, 0.6)) * 4
    taken = (rng.random((4000, tokens, 60)) < chances).any(axis=1)
    assert offloaded().missed(Batch.decode(tokens, 10))[0] == pytest.approx(taken[:, 20:].sum(axis=1).mean(), rel=0.01)
    some = rng.permuted(taken, axis=1)[:, 20:].sum(axis=1).mean()
    assert offloaded(popular=False).missed(Batch.decode(tokens, 10))[0] == pytest.approx(some, rel=0.01)


def test_the_hit_rate_is_the_visits_to_what_is_kept() -> None:
    assert offloaded(popular=False).hit_rate == pytest.approx(1 / 3)
    assert offloaded(skew=0.0).hit_rate == pytest.approx(1 / 3)
    assert 1 / 3 < offloaded().hit_rate < offloaded(skew=1.2).hit_rate < 1
    assert offloaded(cached=60).hit_rate == pytest.approx(1.0) and offloaded(cached=0).hit_rate == 0.0
    fit = gnomon.fit(MODEL, on=ON, techniques=["expert-offload:cached=0.5,keeps=any"])
    assert fit.techniques["expert-offload"]["hits_percent"] == pytest.approx(50)


def test_with_all_of_them_cached_a_step_is_the_plain_one() -> None:
    plain = gnomon.predict(MODEL, on=ON, phase="decode", batch=1, context=100).time_s.value
    for misses in ("copy", "cpu", "both"):
        assert step_s(f"cached=1,misses={misses}") == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize(
    "load",
    [
        {"phase": "decode", "context": 100},
        {"phase": "decode", "context": 100, "batch": 64},
        {"phase": "prefill", "tokens": 256},
    ],
    ids=str,
)
def test_more_of_anything_is_never_slower(load: dict[str, Any]) -> None:
    def seconds(words: str) -> float:
        found = gnomon.predict(MODEL, on=ON, techniques=[f"expert-offload:{words}"], **load)
        return float(found.time_s.value)

    for rising in (
        [f"misses=copy,cached={share}" for share in (0, 0.25, 0.5, 0.75, 1)],
        [f"misses=copy,link_gb_s={rate}" for rate in (5, 20, 60)],
        [f"misses=cpu,cpu_gb_s={rate}" for rate in (5, 20, 60)],
        ["misses=copy,keeps=any", "misses=copy,keeps=popular"],
    ):
        times = [seconds(words) for words in rising]
        assert times == sorted(times, reverse=True), rising
    both, copied, computed = (seconds(f"cpu_gb_s=40,misses={way}") for way in ("both", "copy", "cpu"))
    assert both <= min(copied, computed) * (1 + 1e-9)


def test_bytes_lie_where_they_are_said_to() -> None:
    plain, found = (gnomon.fit(MODEL, on=ON, techniques=words) for words in ((), ("expert-offload:cached=0.25",)))
    experts = 2 * 24 * 60 * 3 * 2048 * 1408
    assert plain.parts["weights"] - found.parts["weights"] == pytest.approx(0.75 * experts)
    assert found.host_bytes == pytest.approx(experts)


def test_a_kernel_reads_only_what_is_cached() -> None:
    op, batch = offloaded(), Batch.decode(1, 10)
    assert op.bytes(batch)[0] < EXPERTS.bytes(batch)[0] and op.bytes(batch)[0] > 0
    assert op.flops(batch) == EXPERTS.flops(batch)
    assert replace(op, cached=60).bytes(batch)[0] == pytest.approx(EXPERTS.bytes(batch)[0])


@pytest.mark.parametrize(
    ("model", "on", "more", "why"),
    [
        ("llama-3.2-1b", "H100", {}, "has no experts"),
        (MODEL, "GB10", {}, "shares one memory with its host"),
        (MODEL, "H100:2", {"tp": 2, "ep": 2}, "use tensor parallelism"),
    ],
)
def test_where_it_does_not_apply_it_says_why(model: str, on: str, more: dict[str, int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        gnomon.predict(model, on=on, phase="decode", context=100, techniques=["expert-offload"], **more)
