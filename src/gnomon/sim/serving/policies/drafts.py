"""How many drafts of a sequence are accepted.

It is drawn for each sequence and step, in order, from a stream of its own: the same requests, seed and shares give the
same figures to the bit, and what a request draws does not depend on others.
"""

from __future__ import annotations

from collections.abc import Sequence

MASK = (1 << 64) - 1
TURN = (5**0.5 - 1) / 2
"""Multiples of the golden ratio are spread evenly over 0 to 1."""
Groups = Sequence[tuple[float, Sequence[float]]]


def uniform(seed: int, request: int, step: int) -> float:
    """A number from 0 to 1 for a step of a request (a hash, SplitMix64's)."""
    bits = (seed * 0x9E3779B97F4A7C15 + request * 0xBF58476D1CE4E5B9 + step * 0x94D049BB133111EB + 0x1234567) & MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & MASK
    return ((bits ^ (bits >> 31)) >> 11) / (1 << 53)


def accepted(groups: Groups, seed: int, request: int, step: int) -> int:
    """Drafts that are accepted in a step of a sequence, counted from 1 on: of its group's `shares`, the first i in
    `shares[i - 1]` of all steps. Requests take turns in the groups, so that any part of a load has them in their
    shares."""
    at, left = 0, ((request + 1) * TURN + uniform(seed, 0, 0)) % 1.0 if len(groups) > 1 else 0.0
    while at < len(groups) - 1 and left >= groups[at][0]:
        left -= groups[at][0]
        at += 1
    drawn = uniform(seed, request, step)
    count = 0
    for share in groups[at][1]:
        if drawn >= share:
            break
        count += 1
    return count
