"""Gaps between tokens and series over time: what the log of a run that jumps says, against runs that walk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.test_sim_serving import METERED, Case, cases, sharing_cases
from tests.sim.costs import Smooth
from tests.sim.plain import Plain

from gnomon.cost.step import StepCost
from gnomon.sim.serving import Recorder, RunLog, ServingRun, simulate
from gnomon.sim.serving.base import NO_REQUEST, Decision, Queue
from gnomon.sim.serving.closed import simulate_closed
from gnomon.sim.serving.gaps import RESOLUTION, GapHistogram, token_gaps
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.series import RunSeries, bin_edges, run_series, step_shares
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class PrefillFirst(ChunkedPolicy):
    """Decodes pause while a prompt waits that finds a place and blocks."""

    __slots__ = ()

    def decide(self, queue: Queue, now: float) -> Decision:
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        if self.partial == NO_REQUEST:
            left = self._admit(queue, now, self._step_tokens, chunks, prompts)
            if chunks:
                return Decision(0, 0, chunks, prompts, [], self._step_tokens - left)
        return super().decide(queue, now)


SHARES = np.array([0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
ANY = settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
REAL = ServingLimits(
    kv_blocks=3000, max_sequences=64, max_step_tokens=1024, max_context=8192, lookahead=1, request_s=1e-3, egress_s=2e-4
)


def logged(case: Case, *, walk: bool = False) -> tuple[ServingRun, RunLog]:
    log = RunLog()
    return simulate(*case, record=Recorder() if walk else None, log=log), log


def load(count: int, gap_s: float) -> Requests:
    rng = np.random.default_rng(count)
    prompt, output = rng.integers(20, 800, count), rng.integers(1, 400, count)
    return Requests(np.cumsum(rng.exponential(gap_s, count)), prompt, output)


def plain_gaps(plain: Plain) -> np.ndarray:
    return np.concatenate([np.diff(req.tokens_s) for req in plain.all])


@ANY
@given(case=st.one_of(cases(), sharing_cases()), walk=st.booleans(), pauses=st.booleans())
def test_the_mean_gap_is_the_mean_of_tpot_weighted_by_tokens(case: Case, walk: bool, pauses: bool) -> None:
    requests, cost, limits = case
    run, log = logged((requests, cost, replace(limits, policy=PrefillFirst if pauses else None)), walk=walk)
    found = token_gaps(log)
    assert found.count == pytest.approx(float((run.requests.output_tokens - 1).sum()))
    if found.count:
        total = float((run.finish_s - run.first_token_s).sum())
        assert found.mean * found.count == pytest.approx(total, rel=1e-9, abs=1e-9)


@ANY
@given(case=st.one_of(cases(), sharing_cases()))
def test_gaps_of_a_run_that_walks_are_those_of_its_tokens(case: Case) -> None:
    found, gaps = token_gaps(logged(case, walk=True)[1]), plain_gaps(Plain(*case).run())
    if gaps.size:
        expected = np.quantile(gaps, SHARES)
        np.testing.assert_allclose(found.quantiles(SHARES), expected, rtol=2 * RESOLUTION, atol=1e-6)


@pytest.mark.heavy
@pytest.mark.parametrize("gap_s", [0.3, 0.03, 0.005])
@pytest.mark.parametrize("cost", [Smooth(), METERED[1]])
def test_gaps_of_a_run_that_jumps(cost: StepCost, gap_s: float) -> None:
    case = (load(200, gap_s), cost, REAL)
    found, gaps = token_gaps(logged(case)[1]), plain_gaps(Plain(*case).run())
    np.testing.assert_allclose(found.quantiles(SHARES[1:-1]), np.quantile(gaps, SHARES[1:-1]), rtol=0.003)


@given(st.lists(st.tuples(st.floats(1e-5, 1e3), st.integers(1, 5)), min_size=1, max_size=50))
def test_quantiles_of_a_histogram_are_those_of_its_values(values: list[tuple[float, int]]) -> None:
    gaps, counts = (np.array(column, float) for column in zip(*values, strict=True))
    found = GapHistogram()
    found.add(gaps, counts)
    expected = np.quantile(np.repeat(gaps, counts.astype(int)), SHARES)
    np.testing.assert_allclose(found.quantiles(SHARES), expected, rtol=RESOLUTION)


@ANY
@given(case=st.one_of(cases(), sharing_cases()), bins=st.sampled_from([1, 7, 200]))
def test_bins_sum_to_the_totals(case: Case, bins: int) -> None:
    run, log = logged(case)
    series, requests = run_series(run, log, bin_edges(run, bins)), run.requests
    assert series.output_tokens_per_s.sum() * series.bin_s == pytest.approx(int(requests.output_tokens.sum()))
    assert series.arrivals_per_s.sum() * series.bin_s == pytest.approx(len(requests))
    assert series.dynamic_w.sum() * series.bin_s == pytest.approx(run.dynamic_j)
    if not run.preemptions:
        assert series.waiting.sum() * series.bin_s == pytest.approx(float(run.queue_s.sum()), abs=1e-9)
    shares = step_shares(run.makespan_s, log)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert series.prefill_share.mean() == pytest.approx(shares["prefill"])
    assert series.decode_share.mean() == pytest.approx(shares["decode"])


@ANY
@given(case=cases())
def test_bins_are_those_of_recorded_steps(case: Case) -> None:
    """Sequences in steps, summed step by step."""
    recorder, log = Recorder(), RunLog()
    run = simulate(*case, record=recorder)
    jumped = simulate(*case, log=log)
    bins = 20
    series = run_series(jumped, log, bin_edges(jumped, bins))
    edges = np.append(series.start_s, series.start_s[-1] + series.bin_s)
    running = np.zeros(bins)
    for step in recorder.steps:
        inside = np.minimum(edges[1:], step.end_s) - np.maximum(edges[:-1], step.start_s)
        running += np.maximum(inside, 0.0) * len(step.tokens)
    np.testing.assert_allclose(series.running * series.bin_s, running, rtol=1e-6, atol=1e-9)
    assert jumped.makespan_s == pytest.approx(run.makespan_s)


@pytest.mark.parametrize("gap_s", [0.1, 0.03, 0.005])
def test_blocks_and_tokens_of_a_run_that_jumps_are_those_of_one_that_walks(gap_s: float) -> None:
    case = (load(400, gap_s), METERED[1], REAL)

    def binned(walk: bool) -> RunSeries:
        run, log = logged(case, walk=walk)
        return run_series(run, log, bin_edges(run, 40))

    jumped, walked = binned(False), binned(True)
    most = walked.kv_blocks.max()
    np.testing.assert_allclose(jumped.kv_blocks, walked.kv_blocks, atol=0.01 * most)
    np.testing.assert_allclose(jumped.output_tokens_per_s, walked.output_tokens_per_s, rtol=0.02, atol=5)
    np.testing.assert_allclose(jumped.dynamic_w, walked.dynamic_w, rtol=0.02, atol=1)
    np.testing.assert_allclose(jumped.clock, walked.clock, rtol=0.01)


@pytest.mark.parametrize("clients", [1, 20])
def test_a_closed_loop_has_a_log_too(clients: int) -> None:
    log = RunLog()
    run = simulate_closed(load(200, 1.0), clients, Smooth(), REAL, log)
    found = token_gaps(log)
    assert found.count == float((run.requests.output_tokens - 1).sum())
    assert found.mean * found.count == pytest.approx(float((run.finish_s - run.first_token_s).sum()))
    assert run_series(run, log, bin_edges(run)).output_tokens_per_s.mean() == pytest.approx(run.output_tokens_per_s)
