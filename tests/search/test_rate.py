"""Borders of made-up rooms: found within the tolerance, from below, in few trials."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.search.rate import FULL_TOLERANCE, TOLERANCE, highest, lowered

Shape = Callable[[float], float]

SHAPES: dict[str, Shape] = {
    "straight": lambda x: -2 * x,
    "steep": lambda x: -30 * x,
    "flat": lambda x: -0.05 * x,
    "bent": lambda x: -0.3 * x if x < 0 else -8 * x - 1e-6,
    "a cliff": lambda x: 1.5 if x < 0 else -3.0,
    "a cliff of which nothing is known": lambda x: 0.4 if x < 0 else -math.inf,
    "nobody has such a time": lambda x: math.inf if x < 0 else -math.inf,
    "a queue": lambda x: math.log(max(1 - math.exp(x) / 1.1, 1e-9)) - math.log(1 - 1 / 1.1),
    "waves": lambda x: -2 * x * (1 + 0.5 * math.sin(40 * x)),
}
"""Room over the logarithm of a rate, as a share of the border."""
BORDERS = st.floats(-6.0, 0.0)
TOLERANCES = st.sampled_from([TOLERANCE, FULL_TOLERANCE])


class Trials:
    """A room that counts how often it was asked."""

    def __init__(self, shape: Shape, border: float) -> None:
        self.shape, self.border, self.count = shape, border, 0

    def __call__(self, rate: float) -> float:
        self.count += 1
        room = self.shape(math.log(rate / self.border))
        return max(room, 0.0) if rate <= self.border else min(room, -1e-12)


@pytest.mark.parametrize("name", SHAPES)
@given(below=BORDERS, tolerance=TOLERANCES)
def test_the_highest_is_just_below_the_border(name: str, below: float, tolerance: float) -> None:
    room = Trials(SHAPES[name], 7.0 * math.exp(below))
    found = highest(room, 7.0 * 1e-3, 7.0, tolerance)
    assert room.border / (1 + tolerance) <= found <= room.border
    assert room.count <= 2 * (1 + math.log2(math.log(1000) / tolerance))


@pytest.mark.parametrize("name", SHAPES)
@given(below=st.floats(-2.0, 0.0), tolerance=TOLERANCES)
def test_from_a_rate_whose_room_is_known(name: str, below: float, tolerance: float) -> None:
    room = Trials(SHAPES[name], 7.0 * math.exp(below))
    held = 7.0 * math.exp(-2.0)
    found = highest(room, held, 7.0, tolerance, known=room(held))
    assert room.border / (1 + tolerance) <= found <= room.border
    assert room.count <= 2 * (1 + math.log2(math.log(1000) / tolerance))


@pytest.mark.parametrize("name", SHAPES)
@given(below=BORDERS, tolerance=TOLERANCES)
def test_lowered_to_just_below_the_border(name: str, below: float, tolerance: float) -> None:
    room = Trials(SHAPES[name], 7.0 * math.exp(below))
    found = lowered(room, 7.0, 1e-3, tolerance)
    assert found is not None
    assert room.border / (1 + tolerance) <= found <= room.border


def test_where_nothing_holds_there_is_no_rate() -> None:
    assert lowered(lambda rate: -0.2, 5.0, 1.0) is None
    assert lowered(lambda rate: -math.inf, 5.0, 5.0) is None


def test_a_room_that_falls_smoothly_takes_fewer_trials_than_a_bisection() -> None:
    taken = {"highest": 0, "known": 0, "lowered": 0}
    cases = [(slope, bend, border) for slope in (1, 2, 4) for bend in (0, 1, 3) for border in (3.0, 3.5, 4.0, 4.5)]
    for slope, bend, border in cases:
        room = Trials(lambda x, slope=slope, bend=bend: -slope * x - bend * x * abs(x), border)  # type: ignore[misc]
        known = room(2.8)
        for name, search in (
            ("highest", lambda room=room: highest(room, 0.009, 9.0)),
            ("known", lambda room=room, known=known: highest(room, 2.8, 9.0, known=known)),
            ("lowered", lambda room=room: lowered(room, 5.0, 0.009)),
        ):
            room.count = 0
            search()
            taken[name] += room.count
    bisection = {"highest": math.log(1000), "known": math.log(9 / 2.8), "lowered": math.log(5 / 2.8)}
    for name, width in bisection.items():
        assert taken[name] < 0.9 * len(cases) * math.log2(width / math.log1p(TOLERANCE)), name
