"""The busiest rank of experts, against drawing tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.graph.ops import Experts, visited_experts
from gnomon.graph.routing import busiest, largest_normal, most_held, most_visited
from gnomon.spec import Batch


def drawn(tokens: int, experts: int, topk: int, ranks: int, times: int) -> tuple[float, float]:
    """Mean over draws of the most visits to a rank, and of the most experts of one rank that are visited."""
    rng = np.random.default_rng(tokens * 1000 + ranks)
    owner = np.repeat(np.arange(ranks), [experts // ranks + (rank < experts % ranks) for rank in range(ranks)])
    visits, seen = [], []
    for _ in range(times):
        chosen = np.argpartition(rng.random((tokens, experts)), topk - 1, axis=1)[:, :topk]
        visits.append(np.bincount(owner[chosen].ravel(), minlength=ranks).max())
        seen.append(np.bincount(owner[np.unique(chosen)], minlength=ranks).max())
    return float(np.mean(visits)), float(np.mean(seen))


@pytest.mark.parametrize("ranks", [2, 6, 8, 16])
@pytest.mark.parametrize(("experts", "topk"), [(128, 8), (256, 8), (64, 6)])
@pytest.mark.parametrize("tokens", [4, 16, 64, 512])
def test_the_busiest_rank_by_drawing(tokens: int, experts: int, topk: int, ranks: int) -> None:
    visits, seen = drawn(tokens, experts, topk, ranks, 200)
    found = float(busiest(np.array([float(tokens)]), experts, topk, ranks)[0])
    assert found == pytest.approx(visits, rel=0.04)
    assert float(most_visited(np.array([float(tokens)]), experts, topk, ranks)[0]) == pytest.approx(seen, rel=0.09)


@pytest.mark.parametrize("ranks", [64, 128])
def test_many_ranks_by_drawing(ranks: int) -> None:
    """Two to four experts a rank: few visits each, far from a normal distribution."""
    for tokens, off in ((16, 0.08), (128, 0.03)):
        assert float(busiest(np.array([float(tokens)]), 256, 8, ranks)[0]) == pytest.approx(
            drawn(tokens, 256, 8, ranks, 200)[0], rel=off
        )


@given(
    tokens=st.integers(0, 100_000),
    experts=st.integers(2, 512),
    topk=st.integers(1, 16),
    ranks=st.integers(1, 512),
)
def test_between_the_mean_and_everything(tokens: int, experts: int, topk: int, ranks: int) -> None:
    topk, ranks = min(topk, experts), min(ranks, experts)
    found = float(busiest(np.array([float(tokens)]), experts, topk, ranks)[0])
    assert tokens * topk / ranks <= found * (1 + 1e-12)
    assert found <= tokens * topk
    more = float(busiest(np.array([tokens + 1.0]), experts, topk, ranks)[0])
    assert more >= found
    visited = float(most_visited(np.array([float(tokens)]), experts, topk, ranks)[0])
    assert min(tokens, 1) <= visited <= most_held(experts, ranks)
    if ranks > 1:
        assert visited >= visited_experts(np.array([float(tokens)]), experts, topk)[0] / ranks * (1 - 1e-9)


def test_large_steps_even_out() -> None:
    op = Experts(name="e", tokens=1, hidden=8, inner=8, experts=256, topk=8, dtype="bf16", ranks=8)
    batch = Batch.decode(1, 0)
    uneven = [float(Experts(**_fields(op) | {"tokens": n}).imbalance(batch)[0]) for n in (1, 8, 64, 4096, 10**6)]
    assert uneven == sorted(uneven, reverse=True)
    assert uneven[0] > 2
    assert uneven[-1] == pytest.approx(1, abs=2e-3)


def _fields(op: Experts) -> dict[str, object]:
    return {name: getattr(op, name) for name in op.__dataclass_fields__ if name != "kind"}


def test_the_largest_of_some_normals() -> None:
    assert largest_normal(1) == pytest.approx(0, abs=1e-6)
    assert largest_normal(2) == pytest.approx(1 / np.sqrt(np.pi), rel=1e-6)
    assert largest_normal(8) == pytest.approx(1.42360, rel=1e-5)
    rng = np.random.default_rng(0)
    assert largest_normal(100) == pytest.approx(rng.standard_normal((20_000, 100)).max(axis=1).mean(), rel=5e-3)


def test_experts_that_do_not_divide_leave_some_ranks_with_one_more() -> None:
    assert [most_held(128, ranks) for ranks in (1, 2, 6, 100, 128)] == [128, 64, 22, 2, 1]
