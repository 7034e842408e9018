"""Pipelines of unequal micro-batches beside the plain timeline, and beside the walk of equal ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from tests.sim import training_plain

from gnomon.sim.training import SCHEDULES, Schedule, StepTimes, Task, schedule
from gnomon.sim.training.uneven import SAVED, SEND_B, SEND_F, pipeline_s
from gnomon.spec.workload import Floats

STEPS = 3
SIZES = list(product((1, 2, 4), (1, 2, 3), (2, 4, 8)))


def cases() -> Iterator[tuple[str, int, int, int, bool]]:
    for name, chosen in SCHEDULES.items():
        for (pp, vp, micros), blocking in product(SIZES, (False, True)):
            if chosen.possible(pp, vp, micros) and not (blocking and chosen.overlaps):
                yield name, pp, vp, micros, blocking


def uneven(chosen: Schedule, pp: int, vp: int, micros: int) -> tuple[dict[str, Floats], int, int]:
    """Seconds by kind of task: [ranks, chunks, micro-batches, steps]."""
    draws = np.random.default_rng(pp * 100 + vp * 10 + micros)
    chunks = chosen.placement.stages(pp, vp).shape[1]
    each = sum(task.kind == "F" for task in chosen.tasks(pp, vp, micros)[0]) // chunks
    kinds = {kind: 0.1 + draws.random((pp, chunks, each, STEPS)) for kind in "FBIW"}
    return kinds, chunks, each


@pytest.mark.battery(3)
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_every_step_is_what_the_plain_timeline_takes(
    case: tuple[str, int, int, int, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, pp, vp, micros, blocking = case
    chosen = schedule(name)
    kinds, chunks, each = uneven(chosen, pp, vp, micros)
    saved, sent = (
        0.02 * np.arange(1.0, pp + 1)[:, None] * np.ones(chunks),
        {SEND_F: 0.15, SEND_B: 1.3} if micros % 4 else {SEND_F: 1.2, SEND_B: 0.07},
    )

    def lasting(kind: str, rank: int, chunk: int, micro: int) -> Floats:
        if kind in sent:
            return np.full(STEPS, sent[kind])
        return np.full(STEPS, saved[rank, chunk]) if kind == SAVED else kinds[kind][rank, chunk, micro]

    orders = chosen.tasks(pp, vp, micros)
    found = pipeline_s(orders, (pp, chunks, each), lasting, chosen.placement, blocking=blocking)
    for step in range(STEPS):

        def seconds(task: Task, rank: int, times: StepTimes, step: int = step) -> float:
            return float(kinds[task.kind][rank, task.chunk, task.micro, step])

        monkeypatch.setattr(training_plain, "seconds", seconds)
        shape = np.ones((pp, chunks))
        times = StepTimes(
            forward_s=shape, backward_s=shape, overlap_s=saved, blocking=blocking, forward_send_s=sent[SEND_F],
            backward_send_s=sent[SEND_B],
        )  # fmt: skip
        starts = training_plain.plain_starts(orders, times, chosen.placement)
        ends = [
            starts[training_plain.node(task, rank)] + lasts
            for rank, tasks in enumerate(orders)
            for task, lasts in zip(tasks, training_plain.lasting(tasks, rank, times), strict=True)
        ]
        assert found[step] == pytest.approx(max(ends), rel=1e-9)


def test_a_pipeline_of_one_rank_is_a_sum() -> None:
    draws = np.random.default_rng(0).random((8, 5))
    found = pipeline_s(
        schedule("1f1b").tasks(1, 1, 8), (1, 1, 8), lambda kind, rank, chunk, micro: draws[micro],
        schedule("1f1b").placement,
    )  # fmt: skip
    np.testing.assert_allclose(found, 2 * draws.sum(axis=0), rtol=1e-12)
