"""Orders of tasks against PyTorch's own schedules, rank by rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gnomon.sim.training import Task, schedule

schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="run `make test-oracles`")
pytestmark = pytest.mark.oracle

OWN = {
    "interleaved": "ScheduleInterleaved1F1B",
    "interleaved-zb": "ScheduleInterleavedZeroBubble",
    "zb-v": "ScheduleZBVZeroBubble",
    "dualpipe-v": "ScheduleDualPipeV",
}
SIZES = [(2, 2, 2), (2, 2, 4), (2, 3, 8), (3, 2, 9), (4, 2, 8), (4, 3, 12), (4, 2, 20), (8, 2, 16), (8, 2, 40)]


def theirs(name: str, pp: int, vp: int, micros: int, rank: int) -> list[tuple[Any, ...]]:
    """What PyTorch's class runs on a rank: kind, stage, micro-batch, and whether it overlaps with the next."""
    kind = getattr(schedules, OWN[name])
    rounds = max(1, micros // pp)
    about = SimpleNamespace(
        pp_group_size=pp,
        num_stages=pp * vp,
        n_local_stages=vp,
        _n_microbatches=micros,
        number_of_rounds=rounds,
        microbatches_per_round=micros // rounds,
    )
    found: list[tuple[Any, ...]] = []
    for action in kind._calculate_single_rank_operations(about, rank):
        if action is None:
            continue
        together = action.sub_actions or (action,)
        for place, one in enumerate(together):
            overlapped = len(together) > 1 and place == 0
            found.append((one.computation_type.value, one.stage_index, one.microbatch_index, overlapped))
    return found


def ours(name: str, pp: int, vp: int, micros: int) -> list[list[tuple[Any, ...]]]:
    chosen = schedule(name)
    stages = chosen.placement.stages(pp, vp)

    def told(rank: int, task: Task) -> tuple[Any, ...]:
        return task.kind, int(stages[rank, task.chunk]), task.micro, task.overlapped

    return [[told(rank, task) for task in tasks] for rank, tasks in enumerate(chosen.tasks(pp, vp, micros))]


@pytest.mark.parametrize("name", OWN)
def test_orders_are_those_of_pytorch(name: str) -> None:
    compared = 0
    for pp, vp, micros in SIZES:
        if schedule(name).possible(pp, vp, micros):
            own = ours(name, pp, vp, micros)
            assert own == [theirs(name, pp, vp, micros, rank) for rank in range(pp)], (pp, vp, micros)
            compared += 1
    assert compared >= 3
