"""The cheapest mixture of replicas is that of trying all of them, however few kinds are evaluated."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.search.mixture import Mixture, ReplicaKind, cheapest, price


class Carried:
    """What each kind carries, and which were asked for it."""

    def __init__(self, amounts: dict[ReplicaKind, float]) -> None:
        self.amounts, self.evaluated = amounts, set[ReplicaKind]()

    def carries(self, kind: ReplicaKind) -> float:
        self.evaluated.add(kind)
        return self.amounts[kind]

    def holds(self, kind: ReplicaKind, amount: float) -> bool:
        assert 0 < amount <= kind.bound
        return self.amounts[kind] >= amount


@st.composite
def spaces(draw: st.DrawFn) -> dict[ReplicaKind, float]:
    found = {}
    for chip in "ABC"[: draw(st.integers(1, 3))]:
        for number in range(draw(st.integers(1, 3))):
            carries = draw(st.floats(0.1, 5.0))
            bound = carries * draw(st.floats(1.0, 3.0))
            usd_h = draw(st.integers(1, 40)) / 8
            found[ReplicaKind(chip, (chip, number), usd_h, draw(st.integers(1, 4)), bound)] = carries
    return found


def of_all(amounts: dict[ReplicaKind, float], load: float) -> float | None:
    """The least price of any mixture that carries the load."""
    chips = dict.fromkeys(kind.chip for kind in amounts)
    own = [
        [(None, 0), *((kind, n) for kind in amounts if kind.chip == chip for n in range(1, kind.most + 1))]
        for chip in chips
    ]
    prices = []
    for each in itertools.product(*own):
        used: Mixture = tuple((kind, count) for kind, count in each if kind is not None)
        if sum(amounts[kind] * count for kind, count in used) >= load * (1 - 1e-9):
            prices.append(price(used))
    return min(prices, default=None)


@given(amounts=spaces(), load=st.floats(0.1, 30.0))
def test_what_is_found_to_carry_too_little_is_asked_again(amounts: dict[ReplicaKind, float], load: float) -> None:
    """Evaluations that are up to three percent short do not make the mixture dearer."""
    asked = Carried(amounts)
    asked.carries = lambda kind: amounts[kind] / 1.03  # type: ignore[method-assign]
    found = cheapest(list(amounts), load, asked, tolerance=0.03)
    least, close = (of_all({kind: times * each for kind, each in amounts.items()}, load) for times in (1.0, 0.998))
    if found is None:
        assert close is None
    else:
        assert least is not None and least <= price(found) + 1e-9
        assert close is None or price(found) <= close + 1e-9


@given(amounts=spaces(), load=st.floats(0.1, 30.0))
def test_cheapest_is_that_of_all(amounts: dict[ReplicaKind, float], load: float) -> None:
    asked = Carried(amounts)
    found = cheapest(list(amounts), load, asked)
    least = of_all(amounts, load)
    assert (found is None) == (least is None)
    if found is not None:
        assert price(found) == pytest.approx(least)
        assert sum(amounts[kind] * count for kind, count in found) >= load * (1 - 1e-6)
        assert {kind for kind, _ in found} <= asked.evaluated


def test_kinds_that_cannot_help_are_not_evaluated() -> None:
    cheap, dear = ReplicaKind("A", "cheap", 1.0, 8, 2.0), ReplicaKind("B", "dear", 9.0, 8, 3.0)
    asked = Carried({cheap: 1.9, dear: 3.0})
    assert cheapest([cheap, dear], 4.0, asked) == ((cheap, 3),)
    assert asked.evaluated == {cheap}


@pytest.mark.parametrize("seed", range(5))
def test_alike_kinds_of_one_chip_are_asked_a_few_times(seed: int) -> None:
    """Each is lowered to what a cheaper mixture needs of it, not to a little below another of the same price."""
    rng, amounts = random.Random(seed), dict[ReplicaKind, float]()
    for chip in "AB":
        usd_h = rng.choice([1.0, 1.05, 2.0, 2.85, 3.0])
        for tp, ep in ((1, 1), (2, 1), (2, 2), (4, 1), (4, 4)):
            carries = rng.uniform(2, 4) * tp ** rng.uniform(0.5, 1)
            bound = carries * rng.uniform(1.5, 5)
            amounts[ReplicaKind(chip, (tp, ep), usd_h * tp, 8 // tp, bound)] = carries
    asked, questions = Carried(amounts), 0
    holds = asked.holds

    def counted(kind: ReplicaKind, amount: float) -> bool:
        nonlocal questions
        questions += 1
        assert questions <= 6 * len(amounts)
        return holds(kind, amount)

    asked.holds = counted  # type: ignore[method-assign]
    load = rng.uniform(10, 40)
    found = cheapest(list(amounts), load, asked)
    assert (None if found is None else price(found)) == pytest.approx(of_all(amounts, load))
