"""Sends and receives of pipeline ranks: complete, in one order at both ends, and never waiting for each other."""

from __future__ import annotations

from collections import defaultdict

import pytest

from gnomon.engines.torch.transfers import Transfer, Work, with_transfers
from gnomon.sim.training import SCHEDULES, Task

SIZES = [(2, 1, 4), (4, 1, 8), (4, 1, 16), (6, 1, 12), (2, 2, 4), (4, 2, 8), (3, 3, 9)]
CASES = [
    (name, *size) for name, one in SCHEDULES.items() for size in SIZES if one.possible(*size)
]  # fmt: skip


def test_every_schedule_has_cases() -> None:
    assert {case[0] for case in CASES} == set(SCHEDULES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tasks_stay_in_their_order(case: tuple[str, int, int, int]) -> None:
    name, pp, vp, micros = case
    lists = with_transfers(SCHEDULES[name], pp, vp, micros)
    tasks = [[one for one in work if isinstance(one, Task)] for work in lists]
    assert tasks == SCHEDULES[name].tasks(pp, vp, micros)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_ends_have_one_order(case: tuple[str, int, int, int]) -> None:
    """Of transfers both ways together, as NCCL's ranks wait for both ends of each in turn."""
    name, pp, vp, micros = case
    found = defaultdict(list)
    for rank, work in enumerate(with_transfers(SCHEDULES[name], pp, vp, micros)):
        for one in work:
            if isinstance(one, Transfer):
                ends = (rank, one.peer) if one.way == "send" else (one.peer, rank)
                found[rank, one.peer].append((ends, one.kind, one.micro))
    assert found and all(found[a, b] == found[b, a] for a, b in found)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nobody_waits_forever(case: tuple[str, int, int, int]) -> None:
    """Run with receives that are posted and waited for only by the task that needs them."""
    name, pp, vp, micros = case
    lists = with_transfers(SCHEDULES[name], pp, vp, micros)
    sent: set[tuple[int, int, str, int]] = set()
    posted: list[dict[tuple[str, int, int], tuple[int, int, str, int]]] = [{} for _ in lists]
    places = [0] * pp

    def step(rank: int, one: Work) -> bool:
        if isinstance(one, Transfer):
            if one.way == "send":
                sent.add((rank, one.peer, one.kind, one.micro))
            else:
                posted[rank][one.kind, one.chunk, one.micro] = (one.peer, rank, one.kind, one.micro)
            return True
        needed = posted[rank].get(("F" if one.kind == "F" else "B", one.chunk, one.micro))
        return one.kind == "W" or needed is None or needed in sent

    while any(place < len(work) for place, work in zip(places, lists, strict=True)):
        before = sum(places)
        for rank, work in enumerate(lists):
            while places[rank] < len(work) and step(rank, work[places[rank]]):
                places[rank] += 1
        assert sum(places) > before
    assert all(value in sent for one in posted for value in one.values())
