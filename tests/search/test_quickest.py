"""The quickest of many plans against a plain minimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.search.quickest import Quickest, quickest

# Small whole numbers, so that ties are common; how far a bound lies below its value; whether the plan fits.
plans = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 6), st.booleans()), min_size=1, max_size=40)


def found(drawn: list[tuple[int, int, bool]], asked: list[int] | None = None) -> tuple[Quickest, list[float]]:
    values = [float(value) if fits else np.inf for value, _, fits in drawn]
    bounds = np.array([value - slack if fits else np.inf for value, slack, fits in drawn])

    def evaluate(place: int) -> float:
        assert np.isfinite(bounds[place]), "what does not fit is never evaluated"
        if asked is not None:
            asked.append(place)
        return values[place]

    return quickest(bounds, evaluate), values


@given(plans.filter(lambda drawn: any(fits for *_, fits in drawn)))
def test_the_least_and_the_next(drawn: list[tuple[int, int, bool]]) -> None:
    asked: list[int] = []
    answer, values = found(drawn, asked)
    least = sorted(value for value in values if np.isfinite(value))
    assert answer.value == least[0] == values[answer.best]
    assert len(asked) == len(set(asked)) == answer.evaluated
    if len(least) == 1:
        assert (answer.second, answer.second_value) == (None, None)
    else:
        assert answer.second is not None
        assert answer.second != answer.best
        assert answer.second_value == least[1] == values[answer.second]
    # No plan that was left out is below what is promised of them all.
    left = [value for place, value in enumerate(values) if place not in asked]
    assert all(value >= answer.bound for value in left)
    assert answer.bound >= (least[1] if len(least) > 1 else np.inf) or not left


def test_exact_bounds_need_two_evaluations() -> None:
    asked: list[int] = []
    answer, _ = found([(5, 0, True), (3, 0, True), (4, 0, True), (9, 0, True)], asked)
    assert (answer.best, answer.second, asked) == (1, 2, [1, 2])
    assert (answer.evaluated, answer.bound) == (2, 5.0)


def test_of_equal_ones_the_most_hopeful_wins_then_the_first() -> None:
    assert found([(4, 0, True), (4, 2, True), (4, 2, True)])[0].best == 1
    assert found([(4, 0, True)] * 3)[0].best == 0


def test_of_equal_ones_the_one_that_needs_least_wins() -> None:
    """Where bounds are equal too, as those of regular pipelines are."""
    bounds, needs = np.array([5.0, 4.0, 4.0, 4.0]), np.array([1.0, 9.0, 3.0, 6.0])
    answer = quickest(bounds, lambda place: float(bounds[place]), needs=needs)
    assert (answer.best, answer.second) == (2, 3)
    assert quickest(bounds, lambda place: float(bounds[place])).best == 1
    looser = np.array([2.0, 0.5, 1.0])  # bounds of plans that take equally long say nothing
    assert quickest(looser, [2.0, 1.0, 1.0 + 1e-13].__getitem__, needs=np.array([1.0, 5.0, 4.0])).best == 2


def test_progress_counts() -> None:
    seen: list[int] = []
    quickest(np.zeros(3), [3.0, 1.0, 2.0].__getitem__, seen.append)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("size", [1, 7])
def test_one_that_fits_among_none(size: int) -> None:
    drawn = [(1, 0, False)] * size + [(8, 3, True)]
    answer, _ = found(drawn)
    assert (answer.best, answer.evaluated, answer.second, answer.bound) == (size, 1, None, np.inf)


@given(plans.filter(lambda drawn: any(fits for *_, fits in drawn)), st.integers(1, 13))
def test_beyond_a_limit_nothing_is_evaluated(drawn: list[tuple[int, int, bool]], limit: int) -> None:
    """Below it the best and the next are as certain as without one."""
    values = [float(value) if fits else np.inf for value, _, fits in drawn]
    bounds = np.array([value - slack if fits else np.inf for value, slack, fits in drawn])
    if not bounds.min() < limit:
        return
    asked: list[int] = []

    def evaluate(place: int) -> float:
        asked.append(place)
        return values[place]

    answer = quickest(bounds, evaluate, limit=limit)
    assert all(bounds[place] < limit for place in asked)
    within = sorted(value for value in values if value < limit)
    told = [value for value in (answer.value, answer.second_value) if value is not None and value < limit]
    assert told == within[:2]
    assert all(value >= answer.bound for place, value in enumerate(values) if place not in asked)
