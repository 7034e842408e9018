"""Runs that go on from shorter ones of the same stream."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.test_sim_serving import Case, cases, sharing_cases
from tests.sim.costs import Flat

from gnomon.sim.serving import ServingRun, simulate
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.held import HeldRun, simulate_on
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def same(one: ServingRun, other: ServingRun) -> bool:
    arrays = ("first_token_s", "finish_s", "scheduled_s", "cached_tokens")
    counts = ("preemptions", "steps", "busy_s", "peak_kv_blocks", "peak_sequences", "peak_step_tokens", "totals")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays) and all(
        getattr(one, name) == getattr(other, name) for name in counts
    )


@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=st.one_of(cases(), cases(cache=HashedBlocks), sharing_cases()),
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3),
)
def test_a_run_that_goes_on_is_the_run_from_the_start(case: Case, cuts: list[float]) -> None:
    """To the bit, and the shorter runs stay what they were."""
    load, cost, limits = case
    held: HeldRun | None = None
    for count in [*sorted(max(1, int(cut * len(load))) for cut in cuts), len(load)]:
        before = held
        held = simulate_on(held, load.first(count), cost, limits, {})
        assert same(held.run, simulate(load.first(count), cost, limits))
        assert before is None or same(before.run, simulate(before.run.requests, cost, limits))


def test_another_stream_starts_anew() -> None:
    limits = ServingLimits(kv_blocks=100, max_sequences=8, max_step_tokens=64, max_context=512)
    arrival, tokens = np.arange(6.0), np.full(6, 10)
    load = Requests(arrival, tokens, tokens)
    held = simulate_on(None, load.first(3), Flat(), limits, {})
    for other in (
        Requests(arrival * 1.5, tokens, tokens),
        Requests(arrival, tokens + 1, tokens),
        Requests(arrival, tokens, tokens + 1),
        load.first(2),
    ):
        assert same(simulate_on(held, other, Flat(), limits, {}).run, simulate(other, Flat(), limits))
    assert simulate_on(held, load.first(3), Flat(), limits, {}) is held
