"""The cheapest mixture of replicas that carries a load, exactly, from bounds of what each kind carries and few
evaluations.

Of every chip one kind of replica may be used, any number of times. What a kind carries is known to be at most its
bound until it is evaluated. The cheapest mixture by what is known is looked for; where it uses a kind that has only a
bound, that one is evaluated, and the search goes on. When all that it uses is evaluated, no other mixture is cheaper:
bounds only flatter the others. Once some mixture is known, a kind is first asked whether it carries as much as it needs
to make a cheaper one, which takes less than to find out how much it carries; if not, that is its bound.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gnomon.spec.workload import Floats

ENOUGH = 1 - 1e-9
"""Share of the load that has to be carried: sums in another order round differently. What is carried by less is not
enough, and what costs less by less is not cheaper."""


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
    kinds: Sequence[ReplicaKind], load: float, evaluations: Evaluations, known: dict[ReplicaKind, float] | None = None
) -> Mixture | None:
    """The cheapest mixture that carries a load; of equally cheap ones the one that carries most. None where all chips
    together do not. `known` has what was evaluated before, and gets the rest."""
    known = {} if known is None else known
    bounds = {kind: kind.bound for kind in kinds}
    while True:
        found, sure = best_by({kind: known.get(kind, bounds[kind]) for kind in kinds}, load), best_by(known, load)
        unknown = [kind for kind, _ in found or () if kind not in known]
        if found is None or not unknown:
            return found
        if sure is not None and price(found) >= price(sure) * ENOUGH:
            return sure
        most = max(unknown, key=lambda kind: dict(found)[kind] * kind.usd_h)
        needed = _needed(most, bounds, known, load) if sure is not None else 0.0
        if 0 < needed < bounds[most] and not evaluations.holds(most, needed):
            bounds[most] = needed * ENOUGH
        else:
            known[most] = min(most.bound, evaluations.carries(most))


def _needed(
    kind: ReplicaKind, bounds: Mapping[ReplicaKind, float], known: Mapping[ReplicaKind, float], load: float
) -> float:
    """The least that a kind has to carry for a mixture with it that is cheaper than the cheapest that is known, if
    those of other chips carry what their bounds allow."""
    limit = price(best_by(known, load) or ()) * ENOUGH
    others = _cheapest_sums({o: known.get(o, bound) for o, bound in bounds.items() if o.chip != kind.chip}, load)
    lacking = (
        (load * ENOUGH - carried) / count
        for count in range(1, kind.most + 1)
        for spent, carried, _ in others
        if count * kind.usd_h + spent < limit
    )
    return max(0.0, min(lacking, default=bounds[kind]))


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
