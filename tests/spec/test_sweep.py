"""A sweep's questions are the product of its axes, each found by its index."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.spec.sweep import Sweep, compact, thinned

AXES = st.lists(st.integers(1, 4), max_size=4)


def made(sizes: list[int]) -> Sweep:
    axes = tuple(tuple({f"axis{at}": step} for step in range(size)) for at, size in enumerate(sizes))
    return Sweep(command="predict", fixed={"model": "m"}, axes=axes)


@given(AXES)
def test_questions_are_the_product_of_the_axes(sizes: list[int]) -> None:
    sweep = made(sizes)
    expected: list[dict[str, Any]] = []
    for steps in product(*sweep.axes):
        question: dict[str, Any] = {"model": "m"}
        for step in steps:
            question |= step
        expected.append(question)
    assert [sweep.question(index) for index in range(len(sweep))] == expected
    assert sweep.swept == tuple(f"axis{at}" for at in range(len(sizes)))


@pytest.mark.heavy
@given(AXES)
def test_a_line_begins_as_its_question_does(sizes: list[int]) -> None:
    sweep = made(sizes)
    for index in range(len(sweep)):
        row = {"index": index, "question": {"command": "predict"} | sweep.question(index), "answer": {"time_s": 1}}
        assert compact(row).startswith(sweep.prefix(index))
        assert sum(compact(row).startswith(sweep.prefix(other)) for other in range(len(sweep))) == 1


@given(st.integers(0, 500), st.integers(2, 100))
def test_thinned_places_ascend_from_the_first_to_the_last(count: int, most: int) -> None:
    places = list(thinned(count, most))
    assert len(places) == min(count, most)
    assert places == sorted(set(places))
    assert not count or (places[0], places[-1]) == (0, count - 1)


def test_what_is_not_a_number_is_null() -> None:
    assert compact({"a": float("nan"), "b": [float("inf"), 1.5], "c": "é"}) == '{"a":null,"b":[null,1.5],"c":"é"}'
    assert json.loads(compact({"a": 0.1})) == {"a": 0.1}
