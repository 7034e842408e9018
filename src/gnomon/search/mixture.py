"""The cheapest mixture of replicas that carries a load, exactly, from bounds of what each kind carries and few
evaluations.

Of every chip one kind of replica may be used, any number of times. What a kind carries is known to be at most its
bound until it is evaluated. The cheapest mixture by what is known is looked for; where it uses a kind that has only a
bound, that one is evaluated, and the search goes on. When all that it uses is evaluated, no other mixture is cheaper:
bounds only flatter the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gnomon.spec.workload import Floats

ENOUGH = 1 - 1e-9
"""Share of the load that has to be carried: sums in another order round differently."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of replica."""

    chip: str
    name: Hashable
    usd_h: float
    most: int
    bound: float
    """No replica of it carries more."""


Mixture = tuple[tuple[Kind, int], ...]
"""Kinds with their numbers of replicas."""


def cheapest(
    kinds: Sequence[Kind], load: float, carries: Callable[[Kind], float], known: dict[Kind, float] | None = None
) -> Mixture | None:
    """The cheapest mixture that carries a load; of equally cheap ones the one that carries most. None where all chips
    together do not. `carries` evaluates a kind; `known` has what was evaluated before, and gets the rest."""
    known = {} if known is None else known
    while True:
        found = best_by({kind: known.get(kind, kind.bound) for kind in kinds}, load)
        unknown = [kind for kind, _ in found or () if kind not in known]
        if found is None or not unknown:
            return found
        most = max(unknown, key=lambda kind: dict(found)[kind] * kind.usd_h)
        known[most] = min(most.bound, carries(most))


def best_by(carried: Mapping[Kind, float], load: float) -> Mixture | None:
    """The cheapest mixture if each kind carries so much."""
    states: list[tuple[float, float, Mixture]] = [(0.0, 0.0, ())]
    for chip in dict.fromkeys(kind.chip for kind in carried):
        own = [(0.0, 0.0, ())] + [
            (count * kind.usd_h, count * each, ((kind, count),))
            for kind, each in carried.items()
            if kind.chip == chip and each > 0
            for count in range(1, kind.most + 1)
        ]
        states = _merged(states, _front(own), load)
    enough = [state for state in states if state[1] >= load * ENOUGH]
    return min(enough, key=lambda state: (state[0], -state[1]))[2] if enough else None


State = tuple[float, float, Mixture]


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
