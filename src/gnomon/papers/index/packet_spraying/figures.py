"""Packet spraying (Addanki et al. 2024): flows on planned paths load no uplink more than sprayed packets."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from math import gcd

from gnomon.papers.base import Ours

UPLINKS, LEAVES, GPUS, MOST = 16, 16, 16, 64
"""Uplinks of a leaf, leaves, GPUs on each, and flows of a leaf that are tried."""


def _planned(flows: int) -> Fraction:
    """Flows on the busiest uplink: whole ones in turn, and pieces of those that are left."""
    whole, rest = divmod(flows, UPLINKS)
    loads = [Fraction(whole)] * UPLINKS
    pieces = UPLINKS // gcd(rest, UPLINKS) if rest else 0
    for piece in range(rest * pieces):
        loads[piece % UPLINKS] += Fraction(1, pieces)
    return max(loads)


def _over_sprayed(flows: int) -> float:
    return float(_planned(flows) / Fraction(flows, UPLINKS))


@cache
def _within(flows: int, links: int, most: int) -> int:
    """Ways to put flows on links without any link having more than the most, times orders of the flows."""
    if not links:
        return int(not flows)
    ways, chosen = 0, 1
    for here in range(min(flows, most) + 1):
        ways += chosen * _within(flows - here, links - 1, most)
        chosen = chosen * (flows - here) // (here + 1)
    return ways


def _hashed(flows: int) -> float:
    """Mean of the flows on the busiest uplink where each falls on any of them."""
    every = UPLINKS**flows
    return float(sum(1 - Fraction(_within(flows, UPLINKS, most), every) for most in range(flows)))


def figures() -> Iterator[Ours]:
    planned = "busiest uplink, planned over sprayed"
    yield f"{planned}, ring", _over_sprayed(1)
    yield f"{planned}, all-to-all", _over_sprayed(GPUS * GPUS * (LEAVES - 1))
    yield f"{planned}, most of 1 to {MOST} flows", max(_over_sprayed(flows) for flows in range(1, MOST + 1))
    yield "busiest uplink, hashed over sprayed, 16 flows", _hashed(GPUS) / (GPUS / UPLINKS)
