"""Orders of the schedules, against lists written by hand, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sim.training_plain import most_in_flight

from gnomon.errors import InputError
from gnomon.sim.training import SCHEDULES, Task, schedule, usual_schedule, validate
from gnomon.spec import Recipe

SIZES = [(1, 1, 3), (2, 1, 1), (4, 1, 2), (3, 1, 9), (8, 1, 8), (2, 2, 2), (2, 3, 8), (3, 2, 3), (4, 4, 16), (5, 3, 20)]


def written(text: str) -> list[Task]:
    """`F0` is a forward of micro-batch 0 through the first chunk, `F0b` through the second."""
    return [Task("F" if word[0] == "F" else "B", "abc".index(word[2:] or "a"), int(word[1])) for word in text.split()]


def test_orders_are_as_written() -> None:
    assert schedule("gpipe").tasks(2, 1, 3) == [written("F0 F1 F2 B0 B1 B2")] * 2
    assert schedule("1f1b").tasks(3, 1, 4) == [
        written("F0 F1 F2 B0 F3 B1 B2 B3"),
        written("F0 F1 B0 F2 B1 F3 B2 B3"),
        written("F0 B0 F1 B1 F2 B2 F3 B3"),
    ]
    assert schedule("1f1b").tasks(4, 1, 2)[:2] == [written("F0 F1 B0 B1")] * 2
    assert schedule("interleaved").tasks(2, 2, 4) == [
        written("F0 F1 F0b F1b F2 B0b F3 B1b F2b B0 F3b B1 B2b B3b B2 B3"),
        written("F0 F1 F0b B0b F1b B1b F2 B0 F3 B1 F2b B2b F3b B3b B2 B3"),
    ]
    assert schedule("interleaved").tasks(3, 2, 3)[0] == written("F0 F1 F2 F0b F1b F2b B0b B1b B2b B0 B1 B2")


@pytest.mark.parametrize("size", SIZES)
def test_every_schedule_is_valid_and_says_what_it_holds(size: tuple[int, int, int]) -> None:
    pp, vp, micros = size
    for known in SCHEDULES.values():
        if not known.possible(pp, vp, micros):
            continue
        orders = known.tasks(pp, vp, micros)
        validate(orders, pp, vp, micros, known.placement)
        counted = [most_in_flight(tasks) for tasks in orders]
        np.testing.assert_array_equal(known.in_flight(pp, vp, micros, np.arange(pp)), counted)
        assert known.in_flight(pp, vp, micros, 0) == counted[0]


def test_the_registry_has_the_schedules_of_a_recipe() -> None:
    assert Recipe().schedule == usual_schedule(1).name in SCHEDULES
    with pytest.raises(InputError, match=r"unknown schedule '1f1p'\. Near: 1f1b"):
        schedule("1f1p")


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("gpipe", (4, 2, 8), "vp: the schedule gpipe .* not 2. Set vp to 1"),
        ("1f1b", (4, 3, 8), "vp: the schedule 1f1b .* not 3. Set vp to 1"),
        ("1f1b", (0, 1, 8), "pp: 0 is not a valid pipeline size"),
        ("gpipe", (2, 1, -1), "micro-batches: -1 is not a valid pipeline size"),
        ("interleaved", (1, 2, 8), "pp: .* needs a pipeline"),
        ("interleaved", (4, 1, 8), "vp: .* Set vp to 2 or more, or use the schedule 1f1b"),
        ("interleaved", (4, 2, 10), "micro-batches: .* not 10. Nearest: 8 or 12"),
        ("interleaved", (4, 2, 3), "Nearest: 4."),
    ],
)
def test_sizes_without_a_schedule_are_refused(name: str, size: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        schedule(name).tasks(*size)


def broken(rank: int, place: int, text: str) -> list[list[Task]]:
    """1F1B of two ranks and three micro-batches with one task of a rank replaced."""
    orders = schedule("1f1b").tasks(2, 1, 3)
    orders[rank][place : place + 1] = written(text)
    return orders


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (broken(0, 0, "F0")[:1], "there are 1 lists of tasks for 2 ranks"),
        (broken(1, 5, ""), "rank 1, task 5: the backward of micro-batch 2 through chunk 0 is missing"),
        (broken(0, 5, "B1"), "rank 0, task 5: the backward of micro-batch 1 through chunk 0 is given twice"),
        (broken(1, 5, "B2 F1"), "rank 1, task 6: the forward of micro-batch 1 through chunk 0 is given twice"),
        (broken(0, 0, "F3"), r"rank 0, task 0: \('F', 0, 3\) is not a task"),
        (broken(0, 0, "F0b"), r"rank 0, task 0: \('F', 1, 0\) is not a task"),
        (
            broken(0, 0, "B0 F0"),
            "rank 0, task 0: the backward of micro-batch 0 .* comes before its forward",
        ),
    ],
)
def test_broken_lists_are_refused(orders: list[list[Task]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate(orders, 2, 1, 3)


def test_an_overlapped_forward_at_the_end_is_refused() -> None:
    orders = [[*written("F0 B0"), Task("F", 0, 1, True)]]
    with pytest.raises(InputError, match="does not overlap with a backward"):
        validate(orders, 1, 1, 2)


def test_a_deadlock_is_refused() -> None:
    orders = [written("F0 B0 F1 B1"), written("F0 F1 B0 B1")]
    with pytest.raises(InputError, match=r"rank 0, task 1: the backward of micro-batch 0 .* deadlocks .* on rank 1"):
        validate(orders, 2, 1, 2)
