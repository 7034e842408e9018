"""Laws of every pipeline schedule that there is a file of, over random ranks, chunks, micro-batches and times."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.training_plain import lasting, most_in_flight, node, plain_starts

from gnomon.sim.training import SCHEDULES, Schedule, StepTimes, code_of, timeline, validate
from gnomon.sim.training.bounds import pipeline_bound_s
from gnomon.sim.training.pipelines import Pipelines, Terms

Sizes = tuple[Schedule, int, int, int]
SPLIT = [one for one in SCHEDULES.values() if one.splits_backward]


@st.composite
def sizes(draw: st.DrawFn, known: tuple[Schedule, ...] = tuple(SCHEDULES.values()), most: int = 6) -> Sizes:
    one = draw(st.sampled_from(known))
    least, largest = one.chunks
    pp = draw(st.integers(1 if least == 1 else 2, most))
    pp = pp + pp % 2 if one.even_ranks else pp
    vp = draw(st.integers(least, largest or 4))
    multiple, fewest = int(one.multiple(pp)), int(one.fewest(pp))
    micros = -(-fewest // multiple) * multiple + multiple * draw(st.integers(0, max(1, 3 * most // multiple)))
    return one, pp, vp, micros


def random_times(shape: tuple[int, int], seed: int, scale: float, blocking: bool) -> StepTimes:
    rng = np.random.default_rng(seed)
    by_input, by_weight = rng.random(shape), rng.random(shape)
    forward = rng.random(shape)
    return StepTimes(
        forward_s=forward,
        backward_s=by_input + by_weight,
        input_s=by_input,
        weight_s=by_weight,
        overlap_s=rng.random() * np.minimum(forward, by_input).min() * np.ones(shape),
        forward_send_s=scale * rng.random(),
        backward_send_s=scale * rng.random(),
        blocking=blocking,
        reduce_s=scale * rng.random(shape),
        reduce_parts=rng.integers(1, 4, shape),
        overlap=bool(rng.integers(2)),
        optimizer_s=rng.random(shape[0]),
        gather_s=rng.random(shape[0]),
    )


@pytest.mark.heavy
@settings(max_examples=300, deadline=None)
@given(sizes(most=9))
def test_every_task_once_in_an_order_that_ends_and_what_is_held_is_counted(size: Sizes) -> None:
    one, pp, vp, micros = size
    orders = one.tasks(pp, vp, micros)
    validate(orders, pp, vp, micros, one.placement)
    held = one.in_flight(pp, vp, micros, np.arange(pp))
    np.testing.assert_array_equal(held, [most_in_flight(list(tasks)) for tasks in orders])
    stages = one.placement.stages(pp, vp)
    lasts = [
        most_in_flight(list(orders[rank]), chunk)
        for rank in range(pp)
        for chunk in range(stages.shape[1])
        if stages[rank, chunk] == stages.max()
    ]
    assert one.heads(pp, vp, micros) == max(lasts)


@pytest.mark.heavy
@settings(max_examples=200, deadline=None)
@given(sizes(most=5), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 1.0, 5.0]), st.booleans())
def test_the_timeline_is_that_of_the_plain_one(size: Sizes, seed: int, scale: float, blocking: bool) -> None:
    one, pp, vp, micros = size
    orders, shape = one.tasks(pp, vp, micros), one.placement.stages(pp, vp).shape
    times = random_times((shape[0], shape[1]), seed, scale, blocking and not one.overlaps)
    line, plain = timeline(orders, times, one.placement), plain_starts(orders, times, one.placement)
    for rank, tasks in enumerate(orders):
        np.testing.assert_allclose(line.start_s[rank], [plain[node(task, rank)] for task in tasks], rtol=1e-9)
    assert line.step_s == pytest.approx(plain[("end",)], rel=1e-9)
    sends = {
        (span.name[-1], span.rank, span.chunk, span.micro): span.start_s
        for span in line.spans()
        if span.name.startswith("send")
    }
    expected = {
        ("F" if key[1] == "F" else "B", *key[2:]): at for key, at in plain.items() if key[0] == "send" and scale
    }
    assert sends == pytest.approx(expected, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(sizes(most=6), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.1, 1.0]))
def test_a_rank_computes_what_it_has_to_and_one_thing_at_a_time(size: Sizes, seed: int, scale: float) -> None:
    one, pp, vp, micros = size
    orders, shape = one.tasks(pp, vp, micros), one.placement.stages(pp, vp).shape
    times = random_times((shape[0], shape[1]), seed, scale, False)
    line = timeline(orders, times, one.placement)
    for rank, tasks in enumerate(orders):
        lasts = lasting(tasks, rank, times)
        alone = [place for place in range(len(tasks)) if not (place and tasks[place - 1].overlapped)]
        assert float(line.busy_s[rank]) == pytest.approx(sum(lasts[place] for place in alone))
        starts, ends = line.start_s[rank], line.end_s[rank]
        assert all(starts[place] >= ends[before] - 1e-9 for before, place in pairwise(alone))
    assert 0 <= line.bubble_fraction < 1


seconds = st.one_of(st.just(0.0), st.floats(-3, 3).map(lambda power: 10.0**power))


@pytest.mark.heavy
@settings(max_examples=600, deadline=None)
@given(sizes(most=9), st.lists(seconds, min_size=11, max_size=11), st.booleans())
def test_bounds_are_never_above(size: Sizes, drawn: list[float], blocking: bool) -> None:
    one, pp, vp, micros = size
    forward, by_input, by_weight, *ends, send_f, send_b = drawn
    first_f, first_i, first_w, last_f, last_i, last_w = ends
    blocking = blocking and not one.overlaps
    shape = one.placement.stages(pp, vp)
    parts = {"forward": (forward, first_f, last_f), "input": (by_input, first_i, last_i)}
    parts["weight"] = (by_weight, first_w, last_w)
    arrays = {
        name: each + first * (shape == 0) + last * (shape == shape.max()) for name, (each, first, last) in parts.items()
    }
    # No more than either of two tasks that overlap has.
    overlap = min(forward, by_input) / 2 if one.overlaps else 0.0
    times = StepTimes(
        forward_s=arrays["forward"],
        backward_s=arrays["input"] + arrays["weight"],
        input_s=arrays["input"],
        weight_s=arrays["weight"],
        overlap_s=overlap,
        forward_send_s=send_f,
        backward_send_s=send_b,
        blocking=blocking,
    )
    plans = Pipelines(
        schedule=code_of(one.name),
        pp=pp,
        vp=vp,
        micros=micros,
        forward_s=forward,
        backward_s=by_input + by_weight,
        first_forward_s=first_f,
        first_backward_s=first_i + first_w,
        last_forward_s=last_f,
        last_backward_s=last_i + last_w,
        weight_s=by_weight if one.splits_backward else 0.0,
        first_weight_s=first_w if one.splits_backward else 0.0,
        last_weight_s=last_w if one.splits_backward else 0.0,
        overlap_s=overlap,
        forward_send_s=send_f,
        backward_send_s=send_b,
        blocking=blocking,
    )
    exact = timeline(one.tasks(pp, vp, micros), times, one.placement).pipeline_s
    assert float(pipeline_bound_s(plans)) <= exact
    whole = one.bound_s if type(one).bound_s is not Schedule.bound_s else None
    assert whole is None or float(Schedule.bound_s(one, _terms(plans))[0]) <= exact * (1 + 1e-9)


def _terms(plans: Pipelines) -> Terms:
    columns = {name: column.ravel() for name, column in plans.columns().items()}
    return Terms.of(columns, np.array([0]))
