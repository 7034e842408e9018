"""TensorRT-LLM's scheduler that jumps gives the times of the one that follows its source rule by rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.test_sim_serving import Case, cases, sharing_cases
from tests.sim.trtllm_plain import TrtllmPlain

from gnomon.cost.step import StepCost
from gnomon.engines.trtllm.reuse import ReusedBlocks
from gnomon.engines.trtllm.scheduler import InflightBatching
from gnomon.sim.serving import Recorder, ServingRun, simulate
from gnomon.sim.serving.replica import station_of
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

QUICK = settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
POLICIES = st.builds(InflightBatching, no_evict=st.booleans(), chunked=st.booleans())


def compare(load: Requests, cost: StepCost, limits: ServingLimits) -> ServingRun:
    policy = limits.policy
    assert isinstance(policy, InflightBatching)
    plain = TrtllmPlain(load, cost, limits, no_evict=policy.no_evict, chunked=policy.chunked).run()
    recorder = Recorder()
    jumped = simulate(load, cost, limits)
    for run in (jumped, simulate(load, cost, limits, record=recorder)):
        np.testing.assert_allclose(run.first_token_s, plain.first_s, rtol=1e-9)
        np.testing.assert_allclose(run.finish_s, plain.finish_s, rtol=1e-9)
        np.testing.assert_allclose(run.scheduled_s, plain.scheduled_s, rtol=1e-9)
        assert run.cached_tokens.tolist() == [req.cached for req in plain.all]
        assert run.preemptions == plain.preemptions
        assert run.steps == sum(bool(step.work) for step in plain.steps)
        assert run.peak_kv_blocks == plain.peak_blocks
        assert run.busy_s == pytest.approx(plain.busy_s, rel=1e-9)
    assert [(sorted(step.tokens), step.preempted) for step in recorder.steps] == [
        (sorted((req.index, tokens) for req, tokens, *_ in step.work), tuple(step.preempted)) for step in plain.steps
    ]
    return jumped


def under(case: Case, policy: InflightBatching) -> Case:
    """The case under TensorRT-LLM's scheduler: its steps have room for a block, or for any prompt in one piece."""
    load, cost, limits = case
    room = limits.block_tokens if policy.chunked else int(load.input_tokens.max())
    cache = None if load.prefixes is None else ReusedBlocks
    return load, cost, replace(limits, max_step_tokens=limits.max_step_tokens + room, policy=policy, cache=cache)


@pytest.mark.heavy
@QUICK
@given(cases(), POLICIES)
def test_jumping_equals_the_rules(case: Case, policy: InflightBatching) -> None:
    compare(*under(case, policy))


@QUICK
@given(sharing_cases(), POLICIES)
def test_reuse_equals_the_rules_block_by_block(case: Case, policy: InflightBatching) -> None:
    compare(*under(case, policy))


@QUICK
@given(cases(), POLICIES)
def test_what_comes_in_goes_out(case: Case, policy: InflightBatching) -> None:
    """Every request makes its tokens; prompts are computed once where none is paused; blocks and places hold; and
    GUARANTEED_NO_EVICT pauses none."""
    load, cost, limits = under(case, policy)
    recorder = Recorder()
    run = simulate(load, cost, limits, record=recorder)
    made = np.zeros(len(load), int)
    for step in recorder.steps:
        assert sum(tokens for _, tokens in step.tokens) <= limits.max_step_tokens
        assert len(step.tokens) <= limits.max_sequences
    assert (run.finish_s >= run.first_token_s).all() and (run.first_token_s > load.arrival_s).all()
    assert run.peak_kv_blocks <= limits.kv_blocks
    if policy.no_evict:
        assert run.preemptions == 0
    if not run.preemptions:
        for step in recorder.steps:
            for request, tokens in step.tokens:
                made[request] += tokens
        assert made.tolist() == (load.input_tokens + load.output_tokens - 1).tolist()


@QUICK
@given(cases())
def test_prompts_that_come_with_their_cache_need_one_token_of_a_step(case: Case) -> None:
    """On a decode replica a step with room for the longest prompt, or for every decode, is as good as a larger one."""
    load, cost, limits = case
    room = max(int(load.input_tokens.max()), limits.max_sequences)

    def run(tokens: int) -> ServingRun:
        roomy = replace(limits, max_step_tokens=tokens, policy=InflightBatching())
        station = station_of(replace(load, prefixes=None), cost, roomy)
        station.load_all()
        station.run()
        return station.result(load)

    tight, wide = run(room), run(room + int(load.input_tokens.sum()))
    np.testing.assert_allclose(tight.first_token_s, wide.first_token_s, rtol=1e-9)
    np.testing.assert_allclose(tight.finish_s, wide.finish_s, rtol=1e-9)
