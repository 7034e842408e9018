"""A pipeline under load: the loop gives what the plain one gives, and no request, token or batch is lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.sim.costs import Cliffs, Dyadic, Flat, Smooth
from tests.sim.plain_pipeline import PlainPipeline, Powered, Stages, Timed

from gnomon.cost.governor import Governor
from gnomon.sim.serving import Recorder, RunLog, simulate
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.gaps import token_gaps
from gnomon.sim.serving.held import simulate_on
from gnomon.sim.serving.series import bin_edges, run_series
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def limits(**changes: Any) -> ServingLimits:
    base: dict[str, Any] = {"kv_blocks": 40, "max_sequences": 12, "max_step_tokens": 64, "max_context": 512}
    return ServingLimits(**{**base, "lookahead": 0, "stages": 2, **changes})


def load(seed: int, count: int, gap_s: float) -> Requests:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(gap_s, count)) * (rng.random() > 0.2)
    return Requests(arrival, rng.integers(1, 200, count), rng.integers(1, 120, count))


def stages(count: int, seed: int = 0) -> Any:
    made = (Cliffs(), Dyadic(), Smooth(), Cliffs(0.5))
    return Stages(*(Timed(made[(seed + number) % 4]) for number in range(count)))


@pytest.mark.battery(16)
@pytest.mark.parametrize("seed", range(80))
def test_the_loop_is_the_plain_one(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    count = int(rng.integers(2, 5))
    within = limits(
        stages=count,
        kv_blocks=int(rng.choice([24, 40, 4000])),
        max_sequences=int(rng.choice([3, 12, 60])),
        cache=(CountedBlocks, HashedBlocks)[seed % 2],
        idle_start_s=0.002,
        idle_launch=float(rng.choice([1.0, 2.5])),
        egress_s=0.001,
        ingress_s=0.003,
    )
    given = load(seed, 60, float(rng.choice([0.002, 0.05, 0.6])))
    log = RunLog()
    run = simulate(given, stages(count, seed), within, log=log)
    plain = PlainPipeline(given, stages(count, seed), within).run()
    np.testing.assert_allclose(run.first_token_s, plain.first_s, rtol=1e-9)
    np.testing.assert_allclose(run.finish_s, plain.finish_s, rtol=1e-9)
    np.testing.assert_allclose(run.scheduled_s, plain.scheduled_s, rtol=1e-9)
    assert run.preemptions == plain.preemptions
    assert run.steps == sum(bool(step.work) for step in plain.steps)
    assert run.peak_kv_blocks == plain.peak_blocks
    gaps = np.concatenate([np.diff(req.tokens_s) for req in plain.all])
    found = token_gaps(log)
    assert found.count == gaps.size == given.output_tokens.sum() - 60
    assert found.mean == pytest.approx(gaps.mean(), rel=1e-9)


GOVERNOR = Governor(limit_w=600.0, active_w=110.0)


def powered(count: int, governor: Governor = GOVERNOR) -> Any:
    made = (Cliffs(), Smooth(), Dyadic(), Cliffs(0.5))
    return Stages(*(Powered(made[number], governor) for number in range(count)))


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("gap_s", [0.01, 0.3])
def test_each_stage_has_a_clock(count: int, gap_s: float) -> None:
    given, within = load(count, 60, gap_s), limits(stages=count, kv_blocks=60)
    log = RunLog()
    run = simulate(given, powered(count), within, log=log)
    plain = PlainPipeline(given, powered(count), within).run()
    np.testing.assert_allclose(run.finish_s, plain.finish_s, rtol=1e-9)
    joules = sum(clock.joules for clock in plain.clocks if clock) / count
    assert run.dynamic_j == pytest.approx(joules, rel=1e-9)
    assert run.clock_slowdown > 1.0
    free = Governor(limit_w=1e9, active_w=110.0)
    unlimited = simulate(given, powered(count, free), within)
    assert unlimited.clock_slowdown == 1.0
    series = run_series(run, log, bin_edges(run))
    assert series.dynamic_w.mean() == pytest.approx(run.dynamic_j / (run.finish_s.max() - given.arrival_s[0]))
    assert np.nanmin(series.clock) < 1.0


def test_preempted_requests_wait_in_the_series() -> None:
    given, log = load(4, 60, 0.01), RunLog()
    run = simulate(given, stages(3, 1), limits(stages=3, kv_blocks=24), log=log)
    assert run.preemptions > 0
    assert log.rows().preempted.max() > 0


def test_no_stage_has_two_batches_and_no_batch_overtakes() -> None:
    plain = PlainPipeline(load(1, 60, 0.01), stages(3), limits(stages=3, kv_blocks=4000)).run()
    assert plain.most_in_flight == 3
    for before, after in pairwise(plain.traces):
        assert all(start >= end - 1e-12 for (_, end), (start, _) in zip(before, after, strict=True))
    for trace in plain.traces:
        assert all(start >= end - 1e-12 for (_, end), (start, _) in pairwise(trace))


def test_tokens_are_conserved() -> None:
    given = load(5, 300, 0.01)
    run = simulate(given, stages(3), limits(stages=3, kv_blocks=4000))
    assert run.preemptions == 0
    assert run.totals.prefill_tokens == given.input_tokens.sum()
    assert run.totals.decodes == (given.output_tokens - 1).sum()


def test_a_request_alone_takes_the_sum_of_the_stages() -> None:
    one = Requests(np.array([1.0]), np.array([10]), np.array([3]))
    run = simulate(one, Stages(Timed(Flat()), Timed(Flat())), limits(empty_call_s=0.0))
    # 2 s with the prompt and 1 s without it, on each of two stages.
    assert run.first_token_s.tolist() == pytest.approx([5.0])
    assert run.finish_s.tolist() == pytest.approx([9.0])


def test_a_full_pipeline_takes_its_busiest_stage_for_each_batch() -> None:
    # Two prompts that fill a step each, so that there are two batches; then both decode, one behind the other.
    two = Requests(np.zeros(2), np.array([64, 64]), np.array([50, 50]))
    full = simulate(two, Stages(Timed(Flat()), Timed(Flat())), limits(empty_call_s=0.0))
    alone = simulate(two.take(np.array([0])), Stages(Timed(Flat()), Timed(Flat())), limits(empty_call_s=0.0))
    assert full.finish_s.max() == pytest.approx(alone.finish_s[0] + 2, abs=1e-9), "the second is one prompt later"


def test_a_run_goes_on_from_a_shorter_one() -> None:
    given, within = load(2, 90, 0.05), limits(stages=3)
    held = simulate_on(None, given.take(np.arange(50)), stages(3), within, {})
    longer = simulate_on(held, given, stages(3), within, {})
    assert longer.run.finish_s.tolist() == simulate(given, stages(3), within).finish_s.tolist()


def test_recorded_steps_have_every_token_once() -> None:
    given, recorder = load(3, 60, 0.02), Recorder()
    simulate(given, stages(2), limits(kv_blocks=4000), record=recorder)
    computed = np.zeros(60, int)
    for step in recorder.steps:
        for request, tokens in step.tokens:
            computed[request] += tokens
    assert computed.tolist() == (given.input_tokens + given.output_tokens - 1).tolist()
