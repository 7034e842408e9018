"""Experts of uneven popularity: laws of the busiest rank."""

from __future__ import annotations

import numpy as np
import pytest

import gnomon
from gnomon.errors import InputError
from gnomon.graph.ops import TOKENS, Experts
from gnomon.graph.popularity import Popularity, visit_shares
from gnomon.spec import Batch

SHAPES = [(8, 2, 4), (64, 6, 8), (128, 8, 8), (256, 8, 16), (256, 8, 64), (60, 4, 8)]
SKEWS = np.arange(0, 2.01, 0.1)


@pytest.mark.parametrize(("experts", "topk", "ranks"), SHAPES)
def test_equal_popularity_is_what_it_was(experts: int, topk: int, ranks: int) -> None:
    assert Popularity().excess(experts, topk, ranks) == 0
    assert Popularity(balanced=True, redundant=ranks).excess(experts, topk, ranks) == 0
    assert visit_shares(experts, topk, 0.0) == pytest.approx([1 / experts] * experts)


@pytest.mark.parametrize(("experts", "topk", "ranks"), SHAPES)
@pytest.mark.parametrize("balanced", [False, True])
def test_more_skew_is_never_more_even(experts: int, topk: int, ranks: int, balanced: bool) -> None:
    found = [Popularity(skew=skew, balanced=balanced).excess(experts, topk, ranks) for skew in SKEWS]
    assert all(np.diff(found) >= -1e-12)
    assert found[-1] > found[0] == 0


@pytest.mark.parametrize(("experts", "topk", "ranks"), SHAPES)
def test_more_skew_is_never_more_even_with_copies(experts: int, topk: int, ranks: int) -> None:
    """Copies may make up for all of it."""
    found = [Popularity(skew=skew, balanced=True, redundant=ranks).excess(experts, topk, ranks) for skew in SKEWS]
    assert all(np.diff(found) >= -1e-12)


@pytest.mark.parametrize(("experts", "topk", "ranks"), SHAPES)
def test_a_balancer_and_its_copies_never_make_it_worse(experts: int, topk: int, ranks: int) -> None:
    for skew in (0.3, 0.8, 1.4):
        found = [Popularity(skew=skew).excess(experts, topk, ranks)]
        copies = range(0, 5 * ranks, ranks)
        found += [Popularity(skew=skew, balanced=True, redundant=more).excess(experts, topk, ranks) for more in copies]
        assert all(np.diff(found) <= 1e-12)


@pytest.mark.parametrize("skew", [0.2, 1.0, 2.5])
def test_no_token_takes_an_expert_twice(skew: float) -> None:
    shares = np.array(visit_shares(64, 6, skew))
    assert shares.sum() == pytest.approx(1)
    assert shares.max() <= 1 / 6 + 1e-12
    assert all(np.diff(shares) <= 1e-12)


def test_the_expected_busiest_rank_is_that_of_drawn_tokens() -> None:
    """Large batches, where the mean of the busiest rank decides: tokens that each take four different experts, as often
    as these are popular (systematic sampling)."""
    experts, topk, ranks, skew = 64, 4, 8, 0.6
    rng = np.random.default_rng(1)
    often = topk * np.array(visit_shares(experts, topk, skew))
    found = []
    for _ in range(60):
        place, visits = rng.permutation(experts) // (experts // ranks), np.zeros(ranks)
        for _ in range(20):
            order = rng.permutation(experts)
            marks = rng.random((100, 1)) + np.arange(topk)
            np.add.at(visits, place[order[np.searchsorted(np.cumsum(often[order]), marks.ravel() - 1e-12)]], 1)
        found.append(visits.max() / visits.sum())
    ours = Popularity(skew=skew).excess(experts, topk, ranks) + 1 / ranks
    assert ours == pytest.approx(np.mean(found), rel=0.06)


def test_visits_of_the_operator() -> None:
    op = Experts(name="e", tokens=TOKENS, hidden=64, inner=64, experts=64, topk=4, dtype="bf16", ranks=8, excess=0.1)
    even, batch = (
        Experts(name="e", tokens=TOKENS, hidden=64, inner=64, experts=64, topk=4, dtype="bf16", ranks=8),
        Batch.decode(1000, 10),
    )
    assert op.imbalance(batch)[0] == pytest.approx(even.imbalance(batch)[0] + 0.8)
    assert op.flops(batch) == even.flops(batch)


def step(**settings: object) -> gnomon.Prediction:
    return gnomon.predict(
        "deepseek-v3", on="H200:16", dtype="fp8", dp=16, ep=16, batch=4096, context=1000, settings=settings
    )  # fmt: skip


def test_a_step_with_skew_a_balancer_and_copies() -> None:
    even, skewed = step(), step(expert_popularity="zipf:0.8")
    placed = step(expert_popularity="zipf:0.8", enable_eplb=True)
    copied = step(expert_popularity="zipf:0.8", enable_eplb=True, num_redundant_experts=32)
    assert even.time_s.value == step(expert_popularity="zipf:0").time_s.value
    assert even.time_s.value <= copied.time_s.value <= placed.time_s.value < skewed.time_s.value
    # Two more experts on each of 16 ranks: three matrices of 7168 x 2048 in fp8 with a scale for 128 x 128, 58 layers.
    more = copied.memory_parts["weights"] - placed.memory_parts["weights"]
    assert more == pytest.approx(58 * 2 * 3 * 7168 * 2048 * (1 + 4 / 128**2), rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"expert_popularity": "often"}, "expert_popularity"),
        ({"expert_popularity": "zipf:-1"}, "expert_popularity"),
        ({"num_redundant_experts": 16}, "num_redundant_experts"),
        ({"enable_eplb": True, "num_redundant_experts": 3}, "num_redundant_experts"),
    ],
)
def test_what_is_refused(settings: dict[str, object], where: str) -> None:
    with pytest.raises(InputError) as caught:
        step(**settings)
    assert where in caught.value.where


def test_experts_that_are_not_spread_have_no_busiest_rank() -> None:
    with pytest.raises(InputError, match="not spread"):
        gnomon.predict("deepseek-v3", on="H200:8", dtype="fp8", settings={"enable_eplb": True})
    with pytest.raises(InputError, match="no experts"):
        gnomon.predict("llama-3.1-8b", on="H200", settings={"expert_popularity": "zipf:0.5"})
    whole = gnomon.predict("deepseek-v3", on="H200:8", dtype="fp8", settings={"expert_popularity": "zipf:0.5"})
    assert whole.time_s.value == gnomon.predict("deepseek-v3", on="H200:8", dtype="fp8").time_s.value
    assert [one.option for one in whole.not_modelled] == ["expert_popularity=zipf:0.5"]
