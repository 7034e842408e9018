"""How tokens fall on experts under skewed routing: shares of a power law.

The law is the one of AIConfigurator's tables (its collector's `power_law` distributions): each expert draws a weight x
with a density of x^-skew between 1 and 0.8 of the tokens, or between 0.01 and 2 where choices are fewer than experts;
counts are shares of the choices, rounded, never more than the tokens, and what rounding leaves goes to the experts that
have least, rank by rank. Rank for rank the busiest is the one that is timed. A skew of 1 spreads the experts evenly
over the decades, larger ones leave more of them almost idle.
"""

from __future__ import annotations

import numpy as np

from gnomon.graph.ops import Shape, visited_experts
from gnomon.graph.routing import largest_normal
from gnomon.spec.workload import Floats

MOST_POPULAR = 0.8
"""Of all tokens, the largest weight of the most popular expert; the least popular one's is 1."""
FEW = (0.01, 2.0)
"""Least and largest weight where choices are fewer than experts."""
_NEAR_ZERO = 1e-6


def _ends(tokens: Floats, experts: Floats, topk: Floats) -> tuple[Floats, Floats]:
    """The least and the largest weight an expert draws."""
    many = tokens * topk > experts
    return np.where(many, 1.0, FEW[0]), np.where(many, np.maximum(MOST_POPULAR * tokens, 1.0 + _NEAR_ZERO), FEW[1])


def integral(low: Floats, high: Floats, power: Floats) -> Floats:
    """Of x^(power - 1) from low to high."""
    power = np.where(np.abs(power) < _NEAR_ZERO, _NEAR_ZERO, power)
    return np.asarray(low**power * np.expm1(power * np.log(high / low)) / power)


def _scale(tokens: Floats, experts: Floats, topk: Floats, skew: Floats) -> tuple[Floats, Floats, Floats]:
    """Choices of an expert for a weight of one, and the ends of the weights."""
    low, high = _ends(tokens, experts, topk)
    mean = integral(low, high, 2.0 - skew) / integral(low, high, 1.0 - skew)
    return tokens * topk / (experts * mean), low, high


def visited_unevenly(tokens: Floats, experts: Floats, topk: Floats, skew: Floats) -> Floats:
    """Experts with a token: those whose share rounds to one, and those that get what rounding leaves."""
    scale, low, high = _scale(tokens, experts, topk, skew)
    turn = np.clip(0.5 / scale, low, high)
    whole = integral(low, high, 1.0 - skew)
    rounded = integral(turn, high, 1.0 - skew) / whole
    left = scale * integral(low, turn, 2.0 - skew) / whole
    return np.asarray(np.minimum(experts * (rounded + left), np.minimum(experts, tokens * topk)))


def visited_by(shape: Shape) -> Floats:
    """Experts that the rows of a table visit: as many as they say, else by their skew, else at random and evenly."""
    if "visited" in shape:
        return shape["visited"]
    tokens, experts, topk = shape["tokens"], shape["experts"], shape["topk"]
    if "skew" not in shape:
        return visited_experts(tokens, experts, topk)
    drawn = visited_unevenly(tokens, experts, topk, shape["skew"])
    return np.where(shape["skew"] > 0, drawn, np.minimum(tokens * topk, experts))


def counts_between(tokens: Floats, experts: Floats, topk: Floats, skew: Floats) -> tuple[Floats, Floats]:
    """Between which counts those of visited experts lie, with the same density as the weights."""
    scale, low, high = _scale(tokens, experts, topk, skew)
    least = scale * np.maximum(low, np.minimum(0.5 / scale, high * (1 - _NEAR_ZERO)))
    return np.asarray(least), np.asarray(np.maximum(np.minimum(scale * high, tokens), least * (1 + _NEAR_ZERO)))


def busiest_unevenly(tokens: Floats, experts: Floats, topk: Floats, skew: Floats, ranks: int) -> Floats:
    """Visits to the busiest of the ranks: the largest of sums of h weights each, taken as gamma distributed.

    With mean m and variance v of a sum, k = m^2 / v, the largest of R is m (1 - 1 / 9k + e / 3 sqrt(k))^3 where e is
    the largest of R normal numbers (Wilson and Hilferty). Choices so few that all shares round to nothing are
    distributed round-robin over the ranks.
    """
    scale, low, high = _scale(tokens, experts, topk, skew)
    held = experts / ranks
    mean, square = (integral(low, high, n - skew) / integral(low, high, 1.0 - skew) for n in (2.0, 3.0))
    shape = held * mean**2 / np.maximum(square - mean**2, 1e-12)
    largest = held * mean * (1 - 1 / (9 * shape) + largest_normal(ranks) / (3 * np.sqrt(shape))) ** 3
    visits = scale * np.minimum(largest, held * high)
    spread = np.ceil(tokens * topk / ranks - _NEAR_ZERO)
    most = tokens * np.minimum(topk, held)
    return np.asarray(np.where(scale * high < 0.5, spread, np.clip(visits, np.minimum(spread, most), most)))
