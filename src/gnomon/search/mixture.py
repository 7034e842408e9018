"""The cheapest mixture of replicas that carries a load, exactly, from bounds of what each kind carries and few
evaluations.

Of every chip one kind of replica may be used, any number of times. What a kind carries is known to be at most its
bound until it is evaluated. The cheapest mixture by what is known is looked for; where it uses a kind that has only a
bound, that one is evaluated, and the search goes on. When all that it uses is evaluated, no other mixture is cheaper:
bounds only flatter the others. Once some mixture is known, a kind is first asked whether it carries as much as it needs
to make a cheaper one, which takes less than to find out how much it carries; if not, that is its bound.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gnomon.spec.workload import Floats

ENOUGH = 1 - 1e-9
"""Share of the load that has to be carried: sums in another order round differently. What is carried by less is not
enough, and what costs less by less is not cheaper."""

CLOSE = 1e-3
"""Of what a kind carries: a smaller share that is left open is not asked for."""


@dataclass(frozen=True, slots=True)
class ReplicaKind:
    """One kind of replica."""

    chip: str
    name: Hashable
    usd_h: float
    most: int
    bound: float
    """No replica of it carries more."""


Mixture = tuple[tuple[ReplicaKind, int], ...]
"""Kinds with their numbers of replicas."""
State = tuple[float, float, Mixture]
"""What a mixture costs, and carries."""


class Evaluations(Protocol):
    """What kinds of replicas carry."""

    def carries(self, kind: ReplicaKind) -> float:
        """How much."""

    def holds(self, kind: ReplicaKind, amount: float) -> bool:
        """Whether it carries so much."""


def cheapest(
    kinds: Sequence[ReplicaKind],
    load: float,
    evaluations: Evaluations,
    known: dict[ReplicaKind, float] | None = None,
    tolerance: float = 0.0,
) -> Mixture | None:
    """The cheapest mixture that carries a load; of equally cheap ones the one that carries most. None where all chips
    together do not. `known` has what was evaluated before, and gets the rest. A kind may carry more than it was found
    to, by a share up to `tolerance`: where that would make a cheaper mixture, it is asked."""
    known = {} if known is None else known
    bounds = {kind: _most(kind, known, tolerance) for kind in kinds}
    while True:
        found, sure = best_by(bounds, load), best_by(known, load)
        unsure = [kind for kind, _ in found or () if known.get(kind, -1.0) < bounds[kind]]
        if found is None or not unsure:
            return found
        limit = price(sure) * ENOUGH if sure is not None else math.inf
        if price(found) >= limit:
            return sure
        most = max(unsure, key=lambda kind: (kind not in known, dict(found)[kind] * kind.usd_h))
        needed = _needed(most, bounds, load, limit)
        if most not in known and (sure is None or needed <= 0):
            known[most] = min(most.bound, evaluations.carries(most))
            bounds[most] = _most(most, known, tolerance)
            continue
        if most in known and needed <= known[most]:  # enough, if others carry their most: half of what is open
            needed = (known[most] + bounds[most]) / 2
        if not evaluations.holds(most, needed):
            bounds[most] = max(needed * ENOUGH, known.get(most, 0.0))
        elif most in known:
            known[most] = needed
        else:
            known[most] = min(most.bound, max(needed, evaluations.carries(most)))
            bounds[most] = _most(most, known, tolerance)
        if most in known and bounds[most] < known[most] * (1 + CLOSE):
            bounds[most] = known[most]


def _most(kind: ReplicaKind, known: Mapping[ReplicaKind, float], tolerance: float) -> float:
    """The most that a kind may carry."""
    return min(kind.bound, known[kind] * (1 + tolerance)) if kind in known else kind.bound


def _needed(kind: ReplicaKind, bounds: Mapping[ReplicaKind, float], load: float, limit: float) -> float:
    """The least that a kind has to carry for a mixture with it that costs less than a limit, if those of other chips
    carry what their bounds allow."""
    others = _cheapest_sums({other: bound for other, bound in bounds.items() if other.chip != kind.chip}, load)
    lacking = (
        (load * ENOUGH - carried) / count
        for count in range(1, kind.most + 1)
        for spent, carried, _ in others
        if count * kind.usd_h + spent < limit
    )
    return min(bounds[kind], max(0.0, min(lacking, default=bounds[kind])))


def price(mixture: Mixture) -> float:
    """Dollars per hour."""
    return sum(count * kind.usd_h for kind, count in mixture)


def best_by(carried: Mapping[ReplicaKind, float], load: float) -> Mixture | None:
    """The cheapest mixture if each kind carries so much."""
    enough = [state for state in _cheapest_sums(carried, load) if state[1] >= load * ENOUGH]
    return min(enough, key=lambda state: (state[0], -state[1]))[2] if enough else None


def _cheapest_sums(carried: Mapping[ReplicaKind, float], load: float) -> list[State]:
    """Mixtures that no other beats, each of one kind of every chip at most, up to the first that carries the load."""
    states: list[State] = [(0.0, 0.0, ())]
    for chip in dict.fromkeys(kind.chip for kind in carried):
        own: list[State] = [(0.0, 0.0, ())]
        own += [
            (count * kind.usd_h, count * each, ((kind, count),))
            for kind, each in carried.items()
            if kind.chip == chip and each > 0
            for count in range(1, kind.most + 1)
        ]
        states = _merged(states, _front(own), load)
    return states


def _merged(states: list[State], own: list[State], load: float) -> list[State]:
    """All sums of two lists that no other sum beats: cheaper and carrying as much."""
    price = np.add.outer(_column(states, 0), _column(own, 0)).ravel()
    carried = np.minimum(np.add.outer(_column(states, 1), _column(own, 1)).ravel(), 2 * load)
    found = []
    best = -np.inf
    for place in np.lexsort((-carried, price)).tolist():
        if carried[place] > best:
            best = float(carried[place])
            one, other = states[place // len(own)], own[place % len(own)]
            found.append((one[0] + other[0], one[1] + other[1], (*one[2], *other[2])))
            if best >= load:
                break
    return found


def _front(states: list[State]) -> list[State]:
    found: list[State] = []
    for state in sorted(states, key=lambda state: (state[0], -state[1])):
        if not found or state[1] > found[-1][1]:
            found.append(state)
    return found


def _column(states: list[State], place: int) -> Floats:
    return np.array([state[place] for state in states], np.float64)
