"""Training steps: the quick timeline gives the times of the plain one, closed forms are exact, bounds hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim import closed_forms as closed
from tests.sim.test_training_bounds import exact_s
from tests.sim.training_plain import most_in_flight, node, plain_starts

from gnomon.sim.training import Orders, StepTimes, Task, code_of, regular, schedule, timeline, validate
from gnomon.sim.training.bounds import pipeline_bound_s
from gnomon.sim.training.pipelines import Pipelines

SCHEDULES = ("gpipe", "1f1b", "interleaved")
"""Those with closed forms."""

Sizes = tuple[str, int, int, int]


@st.composite
def sizes(draw: st.DrawFn, names: tuple[str, ...] = SCHEDULES, most: int = 6, rounds: int = 3) -> Sizes:
    name = draw(st.sampled_from(names))
    if name == "interleaved":
        pp = draw(st.integers(2, most))
        return name, pp, draw(st.integers(2, 4)), pp * draw(st.integers(1, rounds))
    pp = draw(st.integers(1, most))
    return name, pp, 1, draw(st.integers(1, rounds * most))


@st.composite
def any_orders(draw: st.DrawFn) -> tuple[int, int, Orders]:
    """Orders of a schedule, or ones that no schedule has: any task that could run next is next."""
    if draw(st.booleans()):
        name, pp, vp, micros = draw(sizes(most=4))
        return pp, vp, schedule(name).tasks(pp, vp, micros)
    pp, vp, micros = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    pick = draw(st.randoms(use_true_random=False))
    orders: list[list[Task]] = [[] for _ in range(pp)]
    ready = [("F", 0, micro) for micro in range(micros)]
    while ready:
        kind, stage, micro = ready.pop(pick.randrange(len(ready)))
        orders[stage % pp].append(Task("F" if kind == "F" else "B", stage // pp, micro))
        if kind == "F":
            ready.append(("F", stage + 1, micro) if stage + 1 < pp * vp else ("B", stage, micro))
        elif stage:
            ready.append(("B", stage - 1, micro))
    validate(orders, pp, vp, micros)
    return pp, vp, orders


@st.composite
def steps(draw: st.DrawFn) -> tuple[Orders, StepTimes]:
    pp, vp, orders = draw(any_orders())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from([0.0, 0.1, 1.0, 5.0]))
    times = StepTimes(
        forward_s=rng.random((pp, vp)),
        backward_s=2 * rng.random((pp, vp)),
        forward_send_s=scale * rng.random(),
        backward_send_s=scale * rng.random(),
        blocking=draw(st.booleans()),
        reduce_s=scale * rng.random((pp, vp)),
        reduce_parts=rng.integers(1, 4, (pp, vp)),
        overlap=draw(st.booleans()),
        optimizer_s=rng.random(pp),
        gather_s=rng.random(pp),
    )
    return orders, times


@settings(max_examples=examples(200), deadline=None)
@given(steps())
def test_the_timeline_is_that_of_the_plain_one(step: tuple[Orders, StepTimes]) -> None:
    orders, times = step
    line, plain = timeline(orders, times), plain_starts(orders, times)
    for rank, tasks in enumerate(orders):
        expected = [plain[node(task, rank)] for task in tasks]
        np.testing.assert_allclose(line.start_s[rank], expected, rtol=1e-9)
    assert line.step_s == pytest.approx(plain[("end",)], rel=1e-9)
    assert line.optimizer_start_s == pytest.approx(plain[("optimizer", 0)], rel=1e-9)
    sends = {
        ("send", span.name[-1], span.rank, span.chunk, span.micro): span.start_s
        for span in line.spans()
        if span.name.startswith("send")
    }
    assert sends == pytest.approx({key: at for key, at in plain.items() if key in sends}, rel=1e-9)
    if times.forward_send_s:
        assert len(sends) == sum(key[0] == "send" for key in plain)


@settings(max_examples=examples(200), deadline=None)
@given(sizes(most=12, rounds=5))
def test_what_is_in_flight_is_what_the_lists_hold(size: Sizes) -> None:
    name, pp, vp, micros = size
    orders = schedule(name).tasks(pp, vp, micros)
    validate(orders, pp, vp, micros)
    held = schedule(name).in_flight(pp, vp, micros, np.arange(pp))
    np.testing.assert_array_equal(held, [most_in_flight(tasks) for tasks in orders])


positive = st.floats(0.01, 10)
share = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0]))


def form(name: str, blocking: bool) -> Callable[..., Any]:
    plain = {"gpipe": "gpipe_s", "1f1b": "one_f_one_b_s", "interleaved": "interleaved_s"}[name]
    chosen: Callable[..., Any] = getattr(closed, f"blocking_{plain}" if blocking else plain)
    return chosen


@settings(max_examples=examples(600), deadline=None)
@given(sizes(most=9, rounds=4), positive, positive, share, share, st.booleans())
def test_closed_forms_are_exact(size: Sizes, f: float, b: float, part_f: float, part_b: float, blocking: bool) -> None:
    """In all of the region they name: no send longer than its task, or any send where they say so."""
    name, pp, vp, micros = size
    most = 8 if blocking or name == "gpipe" else 1
    c_f, c_b = most * part_f * f, most * part_b * b
    counts = (pp, vp, micros) if name == "interleaved" else (pp, micros)
    exact = timeline(schedule(name).tasks(pp, vp, micros), regular(pp, vp, f, b, c_f, c_b, blocking=blocking))
    assert float(form(name, blocking)(*counts, f, b, c_f, c_b)) == pytest.approx(exact.pipeline_s, rel=1e-9)


def test_closed_forms_broadcast() -> None:
    pp, micros = np.array([[2], [4]]), np.array([4, 8, 12])
    for name in SCHEDULES:
        for blocking in (False, True):
            chunks = (3,) if name == "interleaved" else ()
            many = form(name, blocking)(pp, *chunks, micros, 1.0, 2.0, 0.1, 0.3)
            assert many.shape == (2, 3)
            assert many[1, 2] == pytest.approx(float(form(name, blocking)(4, *chunks, 12, 1.0, 2.0, 0.1, 0.3)))


seconds = st.one_of(st.just(0.0), st.floats(-3, 3).map(lambda power: 10.0**power))


@settings(max_examples=examples(600), deadline=None)
@given(sizes(most=9, rounds=4), st.lists(seconds, min_size=8, max_size=8), st.booleans())
def test_bounds_are_never_above(size: Sizes, times: list[float], blocking: bool) -> None:
    """Whatever the times: a task of a microsecond beside a send of a second."""
    name, pp, vp, micros = size
    forward, backward, first_f, first_b, last_f, last_b, send_f, send_b = times
    plans = Pipelines(
        schedule=code_of(name),
        pp=pp,
        vp=vp,
        micros=micros,
        forward_s=forward,
        backward_s=backward,
        first_forward_s=first_f,
        first_backward_s=first_b,
        last_forward_s=last_f,
        last_backward_s=last_b,
        forward_send_s=send_f,
        backward_send_s=send_b,
        blocking=blocking,
    )
    exact = exact_s({name: column[()] for name, column in plans.columns().items()})
    bound = float(pipeline_bound_s(plans))
    assert bound <= exact
    if name == "gpipe":
        assert bound == pytest.approx(exact, rel=1e-9)
