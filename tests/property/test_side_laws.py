"""Laws of tasks beside the passes of a pipeline, under every schedule, against the plain version."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.test_schedule_laws import Sizes, random_times, sizes
from tests.sim.side_plain import Plain

from gnomon.errors import InputError
from gnomon.sim.training import Schedule, StepTimes, schedule, timeline
from gnomon.sim.training.side import (
    COPY_IN,
    COPY_OUT,
    GATHER,
    REDUCE,
    SideTask,
    SideTasks,
    accompanied,
    least_bytes,
    passes_accompanied,
)

KINDS = ("offload", "stream", "reduce", "gather")


def side_of(kind: str, rng: Any, shape: tuple[int, int], scale: float, shared: int) -> tuple[SideTask, ...]:
    def task(name: str, **more: Any) -> SideTask:
        return SideTask(name=name, seconds=scale * rng.random(shape), bytes=rng.random(shape), shared=shared, **more)

    return {
        "offload": (task(COPY_OUT, after="F"), task(COPY_IN, before="B", follows=True)),
        "stream": (task(COPY_IN, before="F"), task(COPY_IN, before="B")),
        "reduce": (task(REDUCE, after="B"), task(COPY_OUT, after="B", follows=True)),
        "gather": (task(COPY_IN, before="F"), task(GATHER, before="F", follows=True)),
    }[kind]


@st.composite
def stepped(draw: st.DrawFn, most: int = 4) -> tuple[Sizes, StepTimes]:
    one, pp, vp, micros = size = draw(sizes(most=most))
    shape = one.placement.stages(pp, vp).shape
    seed, scale = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0.1, 1.0, 3.0]))
    blocking, parts, apart = draw(st.booleans()), draw(st.integers(1, 3)), draw(st.integers(0, 4))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True))
    more, shared = draw(st.sampled_from([1.0, 1.5, 3.0, np.inf])), draw(st.sampled_from([1, 2, pp]))
    times = random_times((shape[0], shape[1]), seed, scale, blocking and not one.overlaps)
    rng, orders, groups = np.random.default_rng(seed), one.tasks(pp, vp, micros), []
    for kind in kinds:
        tasks = side_of(kind, rng, (shape[0], shape[1]), scale, shared)
        group = SideTasks(tasks=tasks, parts=parts, apart=apart)
        least = [least_bytes(group, tasks, rank, (shape[0], shape[1])) for rank, tasks in enumerate(orders)]
        groups.append(replace(group, limit_bytes=np.array(least) * more if more < np.inf else np.inf))
    return size, replace(times, side=tuple(groups))


@settings(max_examples=examples(24), deadline=None)
@given(stepped(most=3))
def test_the_timeline_is_that_of_the_plain_one(case: tuple[Sizes, StepTimes]) -> None:
    (one, pp, vp, micros), times = case
    orders = one.tasks(pp, vp, micros)
    line, plain = timeline(orders, times, one.placement), Plain(orders, times, one.placement).run()
    for rank, parts in enumerate(plain.parts):
        starts, ends = np.zeros(len(orders[rank])), np.zeros(len(orders[rank]))
        for part in parts:
            for place in part["unit"]:
                starts[place] = part["start"] if part["first"] else starts[place]
                ends[place] = part["end"]
        np.testing.assert_allclose(line.start_s[rank], starts, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(line.end_s[rank], ends, rtol=1e-9, atol=1e-12)
    expected = sorted((one["name"], one["rank"], one["chunk"], one["micro"], one["end"]) for one in plain.side)
    found = sorted((side.name, side.rank, side.chunk, side.micro, side.end_s) for side in line._walked.side)
    assert [side[:4] for side in found] == [side[:4] for side in expected]
    np.testing.assert_allclose([side[4] for side in found], [side[4] for side in expected], rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(80), deadline=None)
@given(stepped(most=6))
def test_lanes_run_one_task_and_chips_hold_no_more_than_there_is_room_for(case: tuple[Sizes, StepTimes]) -> None:
    (one, pp, vp, micros), times = case
    orders = one.tasks(pp, vp, micros)
    line = timeline(orders, times, one.placement)
    plain = timeline(orders, replace(times, side=()), one.placement)
    assert line.pipeline_s >= plain.pipeline_s * (1 - 1e-12) and line.step_s >= plain.step_s * (1 - 1e-12)
    shared = times.side[0].tasks[0].shared
    lanes = defaultdict(list)
    for span in line.spans():
        if span.name.startswith("copy"):
            lanes[span.name, span.rank // shared].append((span.start_s, span.end_s))
            assert span.end_s <= line.optimizer_start_s * (1 + 1e-12)
    for spans in lanes.values():
        spans.sort()
        assert all(after[0] >= before[1] - 1e-9 for before, after in pairwise(spans))
        assert sum(end - start for start, end in spans) <= line.optimizer_start_s * (1 + 1e-9)
    for rank, held in enumerate(line.held_bytes):
        for group, most in zip(times.side, held, strict=True):
            assert 0 <= most <= np.broadcast_to(group.limit_bytes, pp)[rank] * (1 + 1e-6)


@settings(max_examples=examples(100), deadline=None)
@given(stepped(most=5))
def test_side_tasks_that_take_nothing_change_nothing(case: tuple[Sizes, StepTimes]) -> None:
    (one, pp, vp, micros), times = case
    free = tuple(
        replace(group, parts=1, limit_bytes=np.inf, tasks=tuple(replace(task, seconds=0.0) for task in group.tasks))
        for group in times.side
    )
    orders = one.tasks(pp, vp, micros)
    plain, line = (timeline(orders, replace(times, side=side), one.placement) for side in ((), free))
    assert line.start_s == plain.start_s and line.step_s == plain.step_s


@settings(max_examples=examples(100), deadline=None)
@given(sizes(most=6), st.integers(1, 3), st.integers(0, 6))
def test_passes_of_a_long_step_are_counted_on_and_never_too_many(size: Sizes, parts: int, apart: int) -> None:
    one, pp, vp, micros = size
    micros *= 3
    for rank in (0, pp - 1):
        counted = passes_accompanied(one, (pp, vp, micros), rank, parts, apart)
        true = np.zeros_like(counted)
        for chunk, _, _ in accompanied(one.tasks(pp, vp, micros)[rank], parts, apart):
            true[chunk] += 1
        assert (counted <= true).all() and (apart or (counted == true).all())


def offload(parts: int = 1, apart: int = 0, **more: Any) -> SideTasks:
    out = SideTask(name=COPY_OUT, seconds=2.0, bytes=1.0, after="F")
    back = SideTask(name=COPY_IN, seconds=2.0, bytes=1.0, before="B", follows=True)
    return SideTasks(tasks=(out, back), parts=parts, apart=apart, **more)


def alone(micros: int, *side: SideTasks) -> StepTimes:
    ones = np.ones((1, 1))
    return StepTimes(forward_s=ones, backward_s=2 * ones, side=side)


def test_one_rank_by_hand() -> None:
    """F0 1 s, copied out by 3, back by 5: its backward ends at 7. In two parts, the last half comes back first."""
    orders = schedule("1f1b").tasks(1, 1, 1)
    line = timeline(orders, alone(1, offload()))
    assert (line.start_s, line.end_s) == ([[0.0, 5.0]], [[1.0, 7.0]])
    halves = timeline(orders, alone(1, offload(parts=2)))
    # Out 0.5 to 1.5 and 1.5 to 2.5; the second half is back at 3.5 and the first at 4.5, as its turn comes.
    assert (halves.start_s, halves.end_s) == ([[0.0, 3.5]], [[1.0, 5.5]])
    kept = timeline(orders, alone(1, offload(parts=2, apart=1)))
    # The second half stays; the first is out at 1.5 and back at 2.5, when the backward of the second has just ended.
    assert (kept.start_s, kept.end_s) == ([[0.0, 1.0]], [[1.0, 3.5]])


def test_room_for_one_pass_makes_passes_wait_for_each_other() -> None:
    orders = schedule("gpipe").tasks(1, 1, 2)
    wide, narrow = (timeline(orders, alone(2, offload(limit_bytes=room))) for room in (np.inf, 1.0))
    assert wide.start_s[0][:2] == [0.0, 1.0] and narrow.start_s[0][:2] == [0.0, 3.0]
    assert wide.held_bytes == [[2.0]] or wide.held_bytes[0][0] > 1.0
    assert narrow.held_bytes == [[1.0]]
    with pytest.raises(InputError, match="less than the 1 that rank 0 needs"):
        timeline(orders, alone(2, offload(limit_bytes=0.9)))
    timeline(orders, alone(2, offload(parts=2, limit_bytes=0.5)))


def test_what_is_no_side_task_is_refused() -> None:
    orders = schedule("1f1b").tasks(1, 1, 1)
    good = offload().tasks[1]
    for wrong in (
        replace(good, name="teleport"),
        replace(good, after="F"),
        replace(good, seconds=-1.0),
        replace(good, bytes=np.ones((2, 2))),
        replace(good, shared=0),
    ):
        with pytest.raises(InputError):
            timeline(orders, alone(1, SideTasks(tasks=(wrong,))))
    with pytest.raises(InputError, match="different numbers of parts"):
        timeline(orders, alone(1, offload(), offload(parts=2)))
    assert isinstance(schedule("1f1b"), Schedule)
