"""The simulator that jumps gives the times of the one that walks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim.costs import Adapted, Cliffs, Dyadic, Metered, Smooth, Unmetered
from tests.sim.plain import Plain
from tests.sim.plain_features import PlainFeatures

from gnomon.cost.governor import Governor
from gnomon.cost.step import StepCost
from gnomon.errors import InputError
from gnomon.sim.serving import Recorder, ServingRun, simulate
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.caches.tiered import TieredBlocks
from gnomon.sim.serving.policies.drafts import accepted
from gnomon.sim.serving.policies.ordered import OrderedPolicy
from gnomon.sim.serving.policies.stepped import SteppedPolicy
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Prefixes, Requests

Case = tuple[Requests, StepCost, ServingLimits]
GRID_S = 2.0**-7
LIMITED = Governor(limit_w=600.0, active_w=100.0, window_s=0.0317, voltage=0.7)
METERED = (Metered(Cliffs(), LIMITED), Metered(Smooth(), LIMITED, host_s=0.0075))
"""Under a power limit that prompts exceed and some numbers of decodes; the second's host is a floor for some."""


def compare(load: Requests, cost: StepCost, limits: ServingLimits) -> ServingRun:
    recorder = Recorder()
    jumped = simulate(load, cost, limits)
    plain = (PlainFeatures if limits.policy is SteppedPolicy else Plain)(load, cost, limits).run()
    for run in (jumped, simulate(load, cost, limits, record=recorder)):
        np.testing.assert_allclose(run.first_token_s, plain.first_s, rtol=1e-9)
        np.testing.assert_allclose(run.finish_s, plain.finish_s, rtol=1e-9)
        np.testing.assert_allclose(run.scheduled_s, plain.scheduled_s, rtol=1e-9)
        assert run.cached_tokens.tolist() == [req.cached for req in plain.all]
        assert run.preemptions == plain.preemptions
        assert run.steps == sum(bool(step.work) for step in plain.steps)
        assert run.peak_kv_blocks == plain.peak_blocks
        assert run.busy_s == pytest.approx(plain.busy_s, rel=1e-9)
        if plain.clock:
            assert run.dynamic_j == pytest.approx(plain.clock.joules, rel=1e-9)
    assert [(step.tokens, step.preempted) for step in recorder.steps] == [
        (tuple((req.index, tokens) for req, tokens, *_ in step.work), tuple(step.preempted)) for step in plain.steps
    ]
    return jumped


@st.composite
def cases(draw: st.DrawFn, cache: Any = CountedBlocks) -> Case:
    """Small engines and streams on a grid of times, where arrivals often meet the ends of steps."""
    longest = draw(st.sampled_from([3, 30, 100]))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 40), st.integers(1, longest), st.integers(1, longest)), min_size=1, max_size=25
        )
    )
    gaps, prompt, output = (np.array(column) for column in zip(*rows, strict=True))
    scale = draw(st.sampled_from([0.0, 0.25, 1.0, 8.0]))
    block = draw(st.sampled_from([1, 2, 5, 16]))
    places = draw(st.integers(1, 12))
    least = int(np.max(-(-(prompt + output - 1) // block)))
    limits = ServingLimits(
        kv_blocks=least + draw(st.integers(0, 40)),
        block_tokens=block,
        max_sequences=places,
        max_step_tokens=places + draw(st.integers(0, 60)),
        max_context=200,
        cache=cache,
        lookahead=draw(st.integers(0, 1)),
        ingress_s=draw(st.sampled_from([0.0, 0.25])),
        egress_s=draw(st.sampled_from([0.0, 0.5])),
        idle_start_s=draw(st.sampled_from([0.0, GRID_S])),
        idle_launch=draw(st.sampled_from([1.0, 1.5])),
        request_s=draw(st.sampled_from([0.0, GRID_S, 0.01])),
        tokenize_s=draw(st.sampled_from([0.0, GRID_S, 1e-3])),
        output_s=draw(st.sampled_from([0.0, 1e-3, 1.0])),
        egress_sequence_s=draw(st.sampled_from([0.0, 0.01])),
    )
    cost = draw(st.sampled_from([Cliffs(), Dyadic(), Smooth(), *METERED]))
    return Requests(np.cumsum(gaps) * scale * GRID_S, prompt, output), cost, limits


@st.composite
def sharing_cases(draw: st.DrawFn) -> Case:
    """The same over a cache that keeps what prompts share: a random tree, under which prompts of any length stand."""
    load, cost, limits = draw(cases(cache=HashedBlocks))
    nodes = draw(st.integers(1, 6))
    parent = [draw(st.integers(-1, at - 1)) for at in range(nodes)]
    end: list[int] = []
    for above in parent:
        end.append((end[above] if above >= 0 else 0) + draw(st.integers(1, 40)))
    node = [draw(st.integers(-1, nodes - 1)) for _ in range(len(load))]
    # What an output has in common with others is only known once it is made: here, prompts share and outputs do not.
    node = [_inside(at, parent, end, int(tokens)) for at, tokens in zip(node, load.input_tokens, strict=True)]
    prefixes = Prefixes(np.array(node), np.array(parent), np.array(end))
    return replace(load, prefixes=prefixes), cost, limits


def _inside(node: int, parent: list[int], end: list[int], tokens: int) -> int:
    """The deepest node above one whose tokens a prompt of so many has."""
    while node >= 0 and end[node] > tokens:
        node = parent[node]
    return node


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(sharing_cases(), cases(cache=HashedBlocks)))
def test_sharing_equals_walking_block_by_block(case: Case) -> None:
    compare(*case)


@st.composite
def ordered_cases(draw: st.DrawFn) -> Case:
    """The same with priorities, with adapters, or with both, over either cache."""
    load, cost, limits = draw(st.one_of(sharing_cases(), cases(cache=HashedBlocks), cases()))
    by_priority, slots = draw(st.sampled_from([(True, 0), (False, 1), (False, 3), (True, 2)]))
    numbers = st.lists(st.integers(0, 5), min_size=len(load), max_size=len(load))
    limits = replace(
        limits,
        policy=OrderedPolicy,
        by_priority=by_priority,
        adapter_slots=slots,
        host_adapters=slots + 1 if slots else 0,
        adapter_copy_s=draw(st.sampled_from([0.0, GRID_S, 0.01])),
        adapter_read_s=draw(st.sampled_from([0.0, 0.1])),
        adapters_wait=draw(st.booleans()),
    )
    cost = Adapted(cost if isinstance(cost, Unmetered) else Cliffs())
    adapter = np.array(draw(numbers)) - 1
    return replace(load, adapter=adapter, priority=np.array(draw(numbers)) % 3), cost, limits


@pytest.mark.heavy
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ordered_cases())
def test_order_and_adapters_equal_walking(case: Case) -> None:
    compare(*case)


@st.composite
def feature_cases(draw: st.DrawFn, least: int = 0) -> Case:
    """The same with any of drafts, a second tier that holds a few blocks or many, adapters and priorities together, at
    least so many of them."""
    drafts, tier, slots, by_priority = draw(
        st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 3), st.booleans()).filter(
            lambda chosen: sum(map(bool, chosen)) >= least
        )
    )
    makes = (sharing_cases(),) if tier else (sharing_cases(), cases(cache=HashedBlocks), cases())
    load, cost, limits = draw(st.one_of(*makes))
    groups = tuple(
        (0.5, tuple(sorted(draw(st.lists(st.floats(0, 1), min_size=drafts, max_size=drafts)), reverse=True)))
        for _ in range(2)
    )
    limits = replace(
        limits,
        policy=SteppedPolicy,
        kv_blocks=limits.kv_blocks + -(-(3 * drafts + 3) // limits.block_tokens),  # drafts beyond a sequence's end
        drafts=drafts,
        draft_shares=groups if drafts else (),
        draft_seed=draw(st.integers(0, 1000)),
        by_priority=by_priority,
        adapter_slots=slots,
        host_adapters=slots + 1 if slots else 0,
        adapter_copy_s=draw(st.sampled_from([0.0, GRID_S, 0.01])),
    )
    if tier:
        limits = replace(
            limits,
            cache=TieredBlocks,
            host_blocks=draw(st.sampled_from([1, 5, 30, 1000])),
            host_block_s=draw(st.sampled_from([0.0, 1e-3, GRID_S])),
            host_copy_s=draw(st.sampled_from([1e-4, 0.05])),
        )
    numbers = st.lists(st.integers(0, 5), min_size=len(load), max_size=len(load))
    if slots:
        cost = Adapted(cost if isinstance(cost, Unmetered) else Cliffs())
    return replace(load, adapter=np.array(draw(numbers)) - 1, priority=np.array(draw(numbers)) % 3), cost, limits


@pytest.mark.heavy
@settings(
    max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(feature_cases())
def test_features_together_equal_walking(case: Case) -> None:
    try:
        compare(*case)
    except InputError as stuck:  # the plain loop would not end
        assert "stops here" in str(stuck)


def test_as_many_drafts_are_accepted_as_said() -> None:
    shares = (0.9, 0.7, 0.2)
    found = np.array([accepted([(1.0, shares)], 3, request, step) for request in range(200) for step in range(1, 101)])
    np.testing.assert_allclose([(found > at).mean() for at in range(3)], shares, atol=0.01)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_jumping_equals_walking(case: Case) -> None:
    compare(*case)


LOADS = {
    "burst": (0.0, 200, 150, {}),
    "idle gaps": (1.0, 100, 80, {}),
    "busy": (0.02, 100, 80, {}),
    "overload": (0.002, 100, 80, {"max_sequences": 10}),
    "chunks": (0.05, 900, 40, {"max_step_tokens": 96}),
    "single tokens": (0.01, 200, 1, {}),
    "short of blocks": (0.01, 100, 200, {"kv_blocks": 60}),
    "hardly any blocks": (0.01, 60, 100, {"kv_blocks": 11}),
}


@pytest.mark.battery(8)
@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("name", LOADS)
@pytest.mark.parametrize(
    "cost", [Cliffs(), Smooth(), *METERED], ids=["cliffs", "smooth", "metered cliffs", "metered smooth"]
)
def test_random_loads(name: str, lookahead: int, cost: StepCost) -> None:
    gap_s, prompt, output, changes = LOADS[name]
    rng = np.random.default_rng(len(name))
    arrival = np.cumsum(rng.exponential(1, 150) * gap_s)
    load = Requests(arrival, rng.integers(1, prompt + 1, 150), rng.integers(1, output + 1, 150))
    base = {"kv_blocks": 1500, "max_sequences": 32, "max_step_tokens": 512, "max_context": 1024}
    front: dict[str, Any] = {"request_s": 1e-3, "tokenize_s": 1e-5, "output_s": 1e-4, "egress_sequence_s": 1e-4}
    idle: dict[str, Any] = {"ingress_s": 0.004, "idle_start_s": 0.003, "idle_launch": 1.5}
    limits = ServingLimits(**base | changes | front, lookahead=lookahead, **idle)
    run = compare(load, cost, limits)
    assert (run.preemptions > 0) == ("blocks" in name)


@pytest.mark.parametrize("lookahead", [0, 1])
@pytest.mark.parametrize("name", LOADS)
def test_random_loads_that_share(name: str, lookahead: int) -> None:
    """Groups of prompts over a common one, as long as a prompt or shorter; blocks are evicted in most of these."""
    gap_s, prompt, output, changes = LOADS[name]
    rng = np.random.default_rng(len(name))
    count, groups = 150, 6
    longest = rng.integers(1, prompt + 1, groups)
    group = rng.integers(-1, groups, count)
    inputs = np.where(group < 0, 0, longest[group]) + rng.integers(0, prompt + 1, count)
    prefixes = Prefixes(group, np.full(groups, -1), longest)
    load = Requests(
        np.cumsum(rng.exponential(1, count) * gap_s), np.maximum(inputs, 1), rng.integers(1, output + 1, count),
        prefixes=prefixes,
    )  # fmt: skip
    base = {"kv_blocks": 200, "max_sequences": 32, "max_step_tokens": 512, "max_context": 2048}
    least = int(-(-load.longest // 16))
    blocks = max(changes.get("kv_blocks", 300 if prompt < 500 else 700), least)
    limits = ServingLimits(**base | changes | {"kv_blocks": blocks}, lookahead=lookahead, cache=HashedBlocks)
    run = compare(load, Cliffs(), limits)
    assert 0.02 < run.cache_hit_rate < 0.95


@pytest.mark.parametrize("gap_s", [0.0, 2e-3])
def test_outputs_of_a_long_overload_slow_requests_down(gap_s: float) -> None:
    load = Requests(np.arange(1200) * gap_s, np.full(1200, 8), np.full(1200, 4))
    base = {"kv_blocks": 4000, "max_sequences": 64, "max_step_tokens": 512, "max_context": 64}
    front = ServingLimits(**base, request_s=2e-3, output_s=2e-4)
    run = compare(load, Smooth(), front)
    light = simulate(load, Smooth(), replace(front, output_s=0.0))
    assert run.scheduled_s[400] == light.scheduled_s[400]
    assert run.scheduled_s[-1] > light.scheduled_s[-1] + 0.3


@settings(max_examples=40, deadline=None)
@given(cases(), st.floats(1.0, 3.0))
def test_slower_steps_finish_a_burst_no_earlier(case: Case, factor: float) -> None:
    load, _, limits = case
    burst = Requests(np.zeros(len(load)), load.input_tokens, load.output_tokens)
    quick, slow = simulate(burst, Cliffs(), limits), simulate(burst, Cliffs(factor), limits)
    assert slow.makespan_s >= quick.makespan_s * (1 - 1e-12)
