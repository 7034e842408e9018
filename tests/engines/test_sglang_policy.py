"""SGLang's scheduler and cache: equal to the plain loop, by steps and by jumps, on random loads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.sim import sglang_plain
from tests.sim.costs import Cliffs, Flat
from tests.sim.sglang_plain import PlainSglang

from gnomon.engines.sglang.adder import PrefillAdder
from gnomon.engines.sglang.scheduling import Scheduling
from gnomon.sim.serving import Recorder, simulate
from gnomon.sim.serving.held import simulate_on
from gnomon.sim.serving.run import ServingRun
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Prefixes, Requests


@st.composite
def loads(draw: st.DrawFn) -> tuple[Requests, ServingLimits, Scheduling]:
    """Few tokens in small pools, so that requests wait, are cut, share and are retracted."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    count, page = draw(st.integers(1, 40)), draw(st.sampled_from([1, 1, 4]))
    prompt = rng.integers(1, draw(st.sampled_from([8, 60])), count)
    output = rng.integers(1, draw(st.sampled_from([2, 12, 50])), count)
    arrival = np.cumsum(rng.exponential(draw(st.sampled_from([1e-4, 0.01, 0.1])), count))
    prefixes = None
    if draw(st.booleans()):
        nodes = draw(st.integers(1, 6))
        parent = np.array([rng.integers(-1, node) if node else -1 for node in range(nodes)])
        end = np.zeros(nodes, np.int64)
        for node in range(nodes):
            end[node] = (end[parent[node]] if parent[node] >= 0 else 0) + rng.integers(1, 40)
        prefixes = Prefixes(rng.integers(-1, nodes, count), parent, end)
    longest = int((prompt + output).max())
    pool = -(-(longest + 2 * page + 1 + draw(st.sampled_from([0, 10, 60, 4000]))) // page)
    sequences = draw(st.sampled_from([1, 3, 16]))
    limits = ServingLimits(
        kv_blocks=pool, block_tokens=page, max_sequences=sequences, max_step_tokens=4096, max_context=longest,
        lookahead=draw(st.sampled_from([0, 1, 1])), empty_call_s=0.0, idle_start_s=2e-3, ingress_s=1e-3, egress_s=1e-3,
    )  # fmt: skip
    mixed = draw(st.booleans())
    options = Scheduling(
        chunk_tokens=draw(st.sampled_from([32, 64])) if mixed else draw(st.sampled_from([None, 8, 32])),
        prefill_tokens=draw(st.sampled_from([40, 200])),
        prefill_requests=draw(st.sampled_from([None, None, 2])),
        mixed=mixed,
        conservativeness=draw(st.sampled_from([0.1, 1.0, 1.3])),
        order=draw(st.sampled_from(["fcfs", "lpm", "lof"])),
        radix=draw(st.booleans()),
    )
    return (
        Requests(arrival, prompt, output, prefixes=prefixes),
        replace(limits, policy=options.policy, cache=options.cache),
        options,
    )


def same(run: ServingRun, plain: PlainSglang) -> None:
    np.testing.assert_allclose(run.first_token_s, plain.first_s, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.finish_s, plain.finish_s, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.scheduled_s, plain.scheduled_s, rtol=0, atol=1e-9)
    assert run.preemptions == plain.preemptions
    assert run.busy_s == pytest.approx(plain.busy_s, abs=1e-9)


@pytest.mark.heavy
@settings(max_examples=examples(250), deadline=None)
@given(loads())
def test_equal_to_the_plain_loop(case: tuple[Requests, ServingLimits, Scheduling]) -> None:
    requests, limits, options = case
    plain = PlainSglang(requests, Cliffs(), limits, options).run()
    recorder = Recorder()
    walked = simulate(requests, Cliffs(), limits, record=recorder)
    same(walked, plain)
    ran = [step for step in recorder.steps if step.tokens]
    theirs = [step for step in plain.steps if step.work]
    for ours, step in zip(ran, theirs, strict=True):
        assert sorted(ours.tokens) == sorted((req.index, tokens) for req, tokens, *_ in step.work)
    jumped = simulate(requests, Cliffs(), limits)
    same(jumped, plain)
    cached = [req.cached or 0 for req in plain.all]
    assert jumped.cached_tokens.tolist() == cached


def stream(*rows: tuple[float, int, int]) -> Requests:
    arrival, prompt, output = zip(*rows, strict=True)
    return Requests(np.array(arrival, float), np.array(prompt), np.array(output))


def within(options: Scheduling, **changes: object) -> ServingLimits:
    base = {"kv_blocks": 1000, "block_tokens": 1, "max_sequences": 8, "max_step_tokens": 4096, "max_context": 900}
    return ServingLimits(**{**base, "lookahead": 0, **changes}, policy=options.policy, cache=options.cache)


def test_decodes_pause_while_prompts_run() -> None:
    options, recorder = Scheduling(chunk_tokens=100), Recorder()
    simulate(stream((0, 10, 9), (2.5, 250, 2)), Flat(), within(options), record=recorder)
    assert [(step.decodes, step.chunks) for step in recorder.steps[2:6]] == [
        (0, ((100, 0),)), (0, ((100, 100),)), (0, ((50, 200),)), (2, ()),
    ]  # fmt: skip


def test_decodes_ride_along_in_mixed_batches() -> None:
    options, recorder = Scheduling(chunk_tokens=100, mixed=True), Recorder()
    simulate(stream((0, 10, 9), (2.5, 250, 2)), Flat(), within(options), record=recorder)
    assert [(step.decodes, step.chunks) for step in recorder.steps[2:5]] == [
        (1, ((99, 0),)), (1, ((99, 99),)), (1, ((52, 198),)),
    ]  # fmt: skip


def test_tokens_are_conserved() -> None:
    rng = np.random.default_rng(0)
    load = Requests(np.cumsum(rng.exponential(0.01, 200)), rng.integers(1, 90, 200), rng.integers(1, 60, 200))
    run = simulate(load, Cliffs(), within(Scheduling(), kv_blocks=20000, lookahead=1))
    assert run.preemptions == 0
    assert run.totals.prefill_tokens == load.input_tokens.sum()
    assert run.totals.decodes == (load.output_tokens - 1).sum()


def test_a_longer_run_goes_on_from_a_shorter_one() -> None:
    rng = np.random.default_rng(3)
    prefixes = Prefixes(rng.integers(-1, 3, 120), np.array([-1, 0, -1]), np.array([30, 50, 20]))
    load = Requests(
        np.cumsum(rng.exponential(0.02, 120)), rng.integers(1, 90, 120), rng.integers(1, 60, 120), prefixes=prefixes
    )
    limits = within(Scheduling(conservativeness=0.2), kv_blocks=400, lookahead=1, max_context=400, empty_call_s=0.0)
    first = simulate_on(None, load.first(60), Cliffs(), limits, {})
    longer = simulate_on(first, load, Cliffs(), limits, {})
    alone = simulate(load, Cliffs(), limits)
    assert longer.run.finish_s.tolist() == alone.finish_s.tolist()
    assert longer.run.cached_tokens.tolist() == alone.cached_tokens.tolist()
    assert alone.preemptions > 0
    assert alone.cached_tokens.sum() > 0


def test_shared_prompts_are_found_once_their_step_has_ended() -> None:
    prefixes = Prefixes(np.array([0, 0, 0]), np.array([-1]), np.array([50]))
    load = Requests(np.array([0.0, 0.0, 30.0]), np.array([60, 60, 60]), np.array([5, 5, 5]), prefixes=prefixes)
    run = simulate(load, Flat(), within(Scheduling()))
    assert run.cached_tokens.tolist() == [0, 0, 50]
    plain = simulate(load, Flat(), within(Scheduling(radix=False)))
    assert plain.cached_tokens.tolist() == [0, 0, 0]


def test_retraction_takes_the_shortest_outputs_first() -> None:
    options, recorder = Scheduling(conservativeness=0.1, radix=False), Recorder()
    load = stream((0, 20, 60), (8, 15, 36))
    run = simulate(load, Flat(), within(options, kv_blocks=100), record=recorder)
    assert run.preemptions >= 1
    assert {each for step in recorder.steps for each in step.preempted} == {1}


@settings(max_examples=60, deadline=None)
@given(loads())
def test_equal_where_outputs_are_longer_than_expected(case: tuple[Requests, ServingLimits, Scheduling]) -> None:
    """Beyond the most that a request is expected to make; ten tokens here, for the sake of short runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sglang_plain, "CLIP", 10)
        patch.setattr(PrefillAdder, "CLIP", 10)
        requests, limits, options = case
        same(simulate(requests, Cliffs(), limits), PlainSglang(requests, Cliffs(), limits, options).run())
