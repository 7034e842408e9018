"""Uneven routing by its closed forms, beside drawing it."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.graph.uneven import busiest_unevenly, counts_between, integral, visited_unevenly
from gnomon.spec.workload import Floats

DRAWS = 200


def draw(tokens: int, experts: int, topk: int, skew: float) -> Floats:
    """Counts of experts, one draw a row: shares of the choices, rounded; what is left goes to those that have least."""
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    even = np.random.default_rng(0).random((DRAWS, experts))
    power = 1 - skew
    weights = (low**power + even * (high**power - low**power)) ** (1 / power)
    counts = np.minimum(np.round(weights / weights.sum(1, keepdims=True) * tokens * topk), tokens)
    for row in counts:
        while row.sum() < tokens * topk:
            row[row.argmin()] += 1
        while row.sum() > tokens * topk:
            row[row.argmax()] -= 1
    return counts


def one(*values: float) -> list[Floats]:
    return [np.array([value]) for value in values]


SIZES = pytest.mark.parametrize(
    ("tokens", "experts", "topk", "skew"),
    [(16, 128, 8, 1.01), (64, 128, 8, 1.2), (1024, 128, 8, 1.01), (4096, 256, 8, 1.2), (512, 64, 6, 1.01)],
)


@SIZES
def test_visited(tokens: int, experts: int, topk: int, skew: float) -> None:
    drawn = (draw(tokens, experts, topk, skew) > 0).sum(1).mean()
    assert visited_unevenly(*one(tokens, experts, topk, skew))[0] == pytest.approx(drawn, rel=0.08)


@SIZES
@pytest.mark.parametrize("ranks", [2, 8])
def test_the_busiest_rank(tokens: int, experts: int, topk: int, skew: float, ranks: int) -> None:
    drawn = draw(tokens, experts, topk, skew).reshape(DRAWS, ranks, -1).sum(2).max(1).mean()
    assert busiest_unevenly(*one(tokens, experts, topk, skew), ranks)[0] == pytest.approx(drawn, rel=0.12)


@SIZES
def test_counts_lie_between_their_ends(tokens: int, experts: int, topk: int, skew: float) -> None:
    least, most = counts_between(*one(tokens, experts, topk, skew))
    assert 0 < least[0] < most[0] <= tokens


def test_more_ranks_have_a_busier_one_each() -> None:
    sizes = one(2048, 128, 8, 1.2)
    shares = [float(busiest_unevenly(*sizes, ranks)[0]) * ranks / (2048 * 8) for ranks in (2, 4, 8, 16)]
    assert shares == sorted(shares)
    assert shares[0] > 1


@pytest.mark.parametrize("power", [-0.2, 0.0, 1e-9, 1.0, 2.0])
def test_integral(power: float) -> None:
    x = np.linspace(2.0, 50.0, 200_001)
    y = x ** (power - 1)
    expected = float(np.sum((y[1:] + y[:-1]) / 2) * (x[1] - x[0]))
    assert integral(*one(2.0, 50.0, power))[0] == pytest.approx(expected, rel=1e-5)
