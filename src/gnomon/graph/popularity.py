"""Experts that some tokens prefer: how much more the busiest expert-parallel rank gets than the others.

Popularity falls with the rank of an expert as a power (Zipf), and a token takes each expert at most once. Which experts
stand on one rank is not known: without a balancer the expected largest share over random placements is taken, with one
what its replicas and its packing come to (EPLB of DeepSeek and vLLM: the expert with the most visits for each of its
copies gets another one; then the fullest copies go to the least loaded ranks, as many on each).

How many experts are visited at all is taken as if all were equally popular: with skew they are fewer, so that time is
not underestimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from gnomon.graph.base import Graph
from gnomon.graph.ops import Experts
from gnomon.graph.routing import most_held
from gnomon.spec.workload import Floats

STEP = 0.1
"""The busiest rank of a skew is no less busy than that of the smaller ones, in steps of this. Beyond 1.5 or so, where
every token takes the same experts, it would be, by a percent."""
MOST_SKEW, HALVINGS = 3.0, 20
"""The largest exponent that is looked for, and halvings until one is found."""
ASSUMED_SKEW = 0.6
"""The exponent where nothing is said of a network's experts: an assumption, measured on none."""
PLACEMENTS = 256
"""Random placements that the expectation is taken over, always the same ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Popularity:
    """How unevenly experts are chosen, and what an engine does about it."""

    skew: float = 0.0
    """Exponent of the power law; all experts are equally popular at 0."""
    balanced: bool = False
    """Whether experts are placed by their popularity."""
    redundant: int = 0
    """Copies of experts beyond the first of each, in a layer."""

    def excess(self, experts: int, topk: int, ranks: int) -> float:
        """Of all visits, the share that the busiest rank gets beyond that of the fullest one under equal popularity."""
        if self.skew == 0 or ranks == 1:
            return 0.0
        smaller = [*np.arange(STEP, self.skew, STEP).round(6).tolist(), self.skew]
        most = max(self._share(experts, topk, ranks, skew) for skew in smaller)
        return max(most - most_held(experts, ranks) / experts, 0.0)

    def _share(self, experts: int, topk: int, ranks: int, skew: float) -> float:
        """Of all visits, those of the busiest rank at a skew."""
        share = _random_share(experts, topk, ranks, skew)
        if not self.balanced:
            return share
        fewer = range(0, self.redundant + 1, ranks)
        return min(share, *(_packed_share(experts, topk, ranks, skew, copies) for copies in fewer), 1.0)


def with_popularity(graph: Graph, popularity: Popularity) -> Graph:
    """The same operators, with experts that are chosen so."""
    if popularity.skew == 0:
        return graph
    return Graph(
        tuple(
            replace(op, excess=popularity.excess(op.experts, op.topk, op.ranks)) if isinstance(op, Experts) else op
            for op in graph.ops
        )
    )


@cache
def visit_shares(experts: int, topk: int, skew: float) -> tuple[float, ...]:
    """Of all visits, those of each expert, the most popular first; none has more than one of every token."""
    wanted = np.arange(1, experts + 1, dtype=float) ** -skew
    taken: Floats = np.zeros(experts)
    full = 0
    while True:  # experts that every token takes, then the others by their popularity
        rest = wanted[full:]
        taken[:full], taken[full:] = 1.0, (topk - full) * rest / rest.sum()
        if full == topk or taken[full] <= 1.0:
            return tuple((taken / topk).tolist())
        full += 1


@cache
def _random_share(experts: int, topk: int, ranks: int, skew: float) -> float:
    shares = np.array(visit_shares(experts, topk, skew))
    random = np.random.Generator(np.random.PCG64(0))
    sizes = np.array([experts // ranks + (rank < experts % ranks) for rank in range(ranks)])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    found = [np.add.reduceat(shares[random.permutation(experts)], starts).max() for _ in range(PLACEMENTS)]
    return float(np.mean(found))


@cache
def _packed_share(experts: int, topk: int, ranks: int, skew: float, redundant: int) -> float:
    shares = visit_shares(experts, topk, skew)
    heap = [(-share, 1, expert) for expert, share in enumerate(shares)]
    heapify(heap)
    for _ in range(redundant):
        _, copies, expert = heap[0]
        heapreplace(heap, (-shares[expert] / (copies + 1), copies + 1, expert))
    each = sorted((-share for share, copies, _ in heap for _ in range(copies)), reverse=True)
    places = -(-len(each) // ranks)
    load = [(0.0, rank, 0) for rank in range(ranks)]
    most = 0.0
    for share in each:
        held, rank, count = heappop(load)
        most = max(most, held + share)
        if count + 1 < places:
            heappush(load, (held + share, rank, count + 1))
    return most


@cache
def placed(experts: int, topk: int, ranks: int, imbalance: float) -> float:
    """Visits to the busiest rank over the mean where experts are placed by their popularity, which is as uneven as
    makes the same figure `imbalance` where they stand at random. More than popularity can make stays as it is."""
    if ranks == 1 or imbalance <= 1:
        return 1.0
    low, high = 0.0, MOST_SKEW
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if ranks * _random_share(experts, topk, ranks, middle) < imbalance else (low, middle)
    if high == MOST_SKEW:
        return imbalance
    return min(max(ranks * _packed_share(experts, topk, ranks, high, 0), 1.0), imbalance)
