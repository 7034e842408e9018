"""How tokens fall on experts, and on the ranks that hold them, when each chooses evenly at random.

Real routers are less even, and drift with the text; what a router's history shows belongs in a measured load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from gnomon.spec.workload import Floats

_REACH, _STEPS = 8.0, 4001


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRouting:
    """How many experts a token visits of how many, and from how many of their groups it may take them."""

    experts: int
    topk: int
    groups: int = 1
    topk_groups: int = 1
    each_rank: bool = False
    """Whether a token is also sent once to each rank of a node, not a copy for each expert there."""

    @property
    def shape(self) -> dict[str, int]:
        """What an exchange is priced by."""
        found = {name: getattr(self, name) for name in ("experts", "topk", "groups", "topk_groups")}
        return found | ({"each_rank": 1} if self.each_rank else {})

    def reached(self, parts: int) -> float:
        """Of so many equal parts of the experts (ranks, or nodes), those that a token visits on average."""
        return parts * (1 - self._missed(parts))

    def _missed(self, parts: int) -> float:
        """The chance that a token has nothing to do with one part."""
        held, open_groups = self.experts / parts, min(self.topk_groups, self.groups)
        whole, left = divmod(self.groups, parts)
        if open_groups == self.groups or (left and parts % self.groups):
            return _none_of(held, self.experts, self.topk)
        group = self.experts / self.groups
        if left:  # a part lies within one group
            chosen = open_groups / self.groups
            return 1 - chosen + chosen * _none_of(held, open_groups * group, self.topk)
        found = 0.0
        for count in range(min(whole, open_groups) + 1):
            ways = math.comb(whole, count) * math.comb(self.groups - whole, open_groups - count)
            share = ways / math.comb(self.groups, open_groups)
            found += share * _none_of(count * group, open_groups * group, self.topk)
        return found


def _none_of(held: float, among: float, taken: int) -> float:
    """The chance that none of so many are taken, where each is as likely to be."""
    chance = 1.0
    for already in range(taken):
        chance *= min(max((among - already - held) / max(among - already, 1.0), 0.0), 1.0)
    return chance


def most_held(experts: int, ranks: int) -> int:
    """Experts of the fullest rank: the first ranks have one more where they do not divide."""
    return -(-experts // ranks)


def busiest(tokens: Floats, experts: int, topk: int, ranks: int) -> Floats:
    """The expected number of visits to the busiest of `ranks` ranks: m + e sqrt(m v) + (e^2 - 1) c / 6.

    m = T k f is what a rank that holds a share f of the experts expects, v = (E - k) / (E - 1) since a token never
    takes an expert twice, and e the expected largest of that many independent normals. Two ranks' visits vary against
    each other, which widens their gap to exactly sqrt(2 m v); the last term is their skew. No rank gets less
    than one visit, or more than each token taking as many of its experts as it can.
    """
    if ranks <= 1:
        return np.asarray(tokens * topk, float)
    held = most_held(experts, ranks)
    among_all = _largest(tokens, experts, topk, 1 / ranks, ranks)
    among_fullest = _largest(tokens, experts, topk, held / experts, experts % ranks or ranks)
    least = np.minimum(np.maximum(tokens * topk * held / experts, 1), tokens * topk)
    return np.clip(np.maximum(among_all, among_fullest), least, tokens * min(topk, held))


def _largest(tokens: Floats, experts: int, topk: int, share: float, ranks: int) -> Floats:
    """Of the visits to so many ranks with a share of the experts each."""
    mean, apart = tokens * topk * share, (experts - topk) / max(experts - 1, 1)
    largest = largest_normal(ranks)
    skew = (1 - 2 * share) * max(experts - 2 * topk, 0) / max(experts - 2, 1)
    return mean + largest * np.sqrt(mean * apart) + max(largest**2 - 1, 0) * skew / 6 * (tokens > 0)


def most_visited(tokens: Floats, experts: int, topk: int, ranks: int) -> Floats:
    """The expected number of visited experts of the rank that has most: h p + e sqrt(h (p (1 - p) - c)).

    p = 1 - (1 - k/E)^T is the chance that an expert is visited, h the experts of a rank, and c what two experts' being
    visited varies together, which is below zero.
    """
    held = most_held(experts, ranks)
    missed = np.exp(tokens * np.log1p(-min(topk / experts, 1 - 1e-12)))
    both = ((experts - topk) * max(experts - topk - 1, 0) / (experts * max(experts - 1, 1))) ** tokens
    apart = np.maximum(missed * (1 - missed) - (both - missed**2), 0.0)
    found = held * (1 - missed) + largest_normal(ranks) * np.sqrt(held * apart)
    return np.asarray(np.clip(found, np.minimum(tokens, 1), np.minimum(held, busiest(tokens, experts, topk, ranks))))


@cache
def largest_normal(count: int) -> float:
    """The expected largest of so many independent standard normal numbers, by integrating over its distribution."""
    x = np.linspace(-_REACH, _REACH, _STEPS)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x]) ** count
    return float(_REACH - np.sum(below[1:] + below[:-1]) * (x[1] - x[0]) / 2)
