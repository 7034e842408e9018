"""The serving simulator: hand-worked cases, refusals, records and sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.sim.costs import Adapted, Cliffs, Flat, Smooth

from gnomon.errors import InputError, UnknownNameError
from gnomon.sim.serving import Curves, Recorder, ServingRun, simulate
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.caches.hashed import HashedBlocks
from gnomon.sim.serving.policies.chunked import ChunkedPolicy
from gnomon.sim.serving.policies.stepped import SteppedPolicy
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Batch, Requests


def stream(*rows: tuple[float, int, int]) -> Requests:
    arrival, prompt, output = zip(*rows, strict=True)
    return Requests(np.array(arrival, float), np.array(prompt), np.array(output))


def limits(**changes: Any) -> ServingLimits:
    base: dict[str, Any] = {"kv_blocks": 100, "max_sequences": 8, "max_step_tokens": 64, "max_context": 512}
    return ServingLimits(**{**base, "lookahead": 0, **changes})


def test_one_request() -> None:
    run = simulate(stream((1.0, 10, 3)), Flat(), limits(ingress_s=0.1, egress_s=0.2, idle_start_s=0.3))
    # A mixed step of 2 s after 0.3 s to start, then two decodes of 1 s.
    assert run.scheduled_s.tolist() == pytest.approx([1.1])
    assert run.first_token_s.tolist() == pytest.approx([1.1 + 0.3 + 2 + 0.2])
    assert run.finish_s.tolist() == pytest.approx([1.1 + 0.3 + 2 + 2 + 0.2])
    assert run.ttft_s.tolist() == pytest.approx([2.6])
    assert run.tpot_s.tolist() == pytest.approx([1.0])
    assert run.queue_s.tolist() == pytest.approx([0.1])
    assert run.busy_s == pytest.approx(4)
    assert run.makespan_s == pytest.approx(4.6)
    assert run.output_tokens_per_s == pytest.approx(3 / 4.6)
    assert (run.steps, run.preemptions, run.peak_kv_blocks, run.peak_sequences) == (3, 0, 1, 1)


def test_a_prompt_beyond_the_budget_is_cut_in_chunks() -> None:
    recorder = Recorder()
    simulate(stream((0, 100, 2)), Flat(), limits(max_step_tokens=40), record=recorder)
    assert [step.chunks for step in recorder.steps] == [((40, 0),), ((40, 40),), ((20, 80),), ()]


@pytest.mark.parametrize(("lookahead", "first_s"), [(0, 5.0), (1, 6.0)])
def test_a_new_request_waits_for_the_step_in_flight(lookahead: int, first_s: float) -> None:
    # Steps of the first request end at 2, 3, 4 ...; the second one comes at 2.5, and its step takes 2 s.
    # Without lookahead it joins the step that starts at 3. With it, that step was scheduled at 2.
    run = simulate(stream((0, 10, 9), (2.5, 10, 2)), Flat(), limits(lookahead=lookahead))
    assert run.first_token_s[1] == first_s


def test_lookahead_sleeps_when_nothing_can_be_scheduled() -> None:
    run = simulate(stream((0, 10, 2), (0, 10, 2)), Flat(), limits(max_sequences=1, lookahead=1))
    # The first ends at 3 s; its last token was in flight, so the loop had scheduled nothing and sleeps.
    assert run.scheduled_s.tolist() == [0, 3.001]


def test_preemption_starts_again_with_what_was_made() -> None:
    recorder = Recorder()
    run = simulate(stream((0, 16, 20), (0, 16, 20)), Flat(), limits(kv_blocks=4), record=recorder)
    # Both cross into a third block at 33 tokens; there are four.
    assert run.preemptions == 1
    (at,) = [i for i, step in enumerate(recorder.steps) if step.preempted]
    assert recorder.steps[at].tokens == ((0, 1),)
    again = next(step for step in recorder.steps[at:] if step.chunks)
    assert again.tokens == ((1, 33),)
    assert run.peak_kv_blocks == 4


@pytest.mark.parametrize("kv_blocks", [20, 60, 2000])
@pytest.mark.parametrize("lookahead", [0, 1])
def test_runs_that_share_their_curves_are_the_same(lookahead: int, kv_blocks: int) -> None:
    curves: Curves = {}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        load = Requests(np.cumsum(rng.exponential(0.01, 100)), rng.integers(1, 90, 100), rng.integers(1, 60, 100))
        within = limits(kv_blocks=kv_blocks, lookahead=lookahead)
        alone, shared = simulate(load, Cliffs(), within), simulate(load, Cliffs(), within, curves=curves)
        assert shared.finish_s.tolist() == alone.finish_s.tolist()
        assert shared.totals == alone.totals
    assert curves


def test_tokens_are_conserved() -> None:
    rng = np.random.default_rng(0)
    load = Requests(np.cumsum(rng.exponential(0.01, 200)), rng.integers(1, 90, 200), rng.integers(1, 60, 200))
    run = simulate(load, Cliffs(), limits(kv_blocks=2000, lookahead=1))
    assert run.preemptions == 0
    assert run.totals.prefill_tokens == load.input_tokens.sum()
    assert run.totals.decodes == (load.output_tokens - 1).sum()


@pytest.mark.parametrize("lookahead", [0, 1])
def test_totals_are_the_sums_of_the_records(lookahead: int) -> None:
    rng = np.random.default_rng(1)
    load = Requests(np.cumsum(rng.exponential(0.02, 100)), rng.integers(1, 200, 100), rng.integers(1, 90, 100))
    recorder = Recorder()
    walked = simulate(load, Smooth(), limits(kv_blocks=60, lookahead=lookahead), record=recorder)
    jumped = simulate(load, Smooth(), limits(kv_blocks=60, lookahead=lookahead))
    assert walked.totals == jumped.totals
    assert walked.busy_s == pytest.approx(jumped.busy_s)
    assert walked.preemptions > 0
    ran = [step for step in recorder.steps if step.tokens]
    assert len(ran) == jumped.totals.steps == jumped.steps
    # The sums over the steps, as the batch describes them; a decode's own context does not matter to them.
    contexts = [[step.decode_context, *[0] * (step.decodes - 1)] if step.decodes else [] for step in ran]
    batches = [Batch.step(context, step.chunks) for context, step in zip(contexts, ran, strict=True)]
    for name in ("decodes", "decode_context", "prefills", "prefill_tokens", "prefill_pairs", "prefill_context"):
        assert getattr(jumped.totals, name) == sum(float(getattr(batch, name)[0]) for batch in batches)
    assert jumped.totals.logit_rows == sum(float(batch.logit_rows[0]) for batch in batches)
    assert jumped.peak_sequences == max(len(step.tokens) for step in ran)


def test_statistics_leave_out_single_tokens() -> None:
    run = simulate(stream((0, 5, 1), (20, 5, 3)), Flat(), limits())
    assert np.isnan(run.tpot_s[0])
    assert run.statistics("tpot") == dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), 1.0)
    alone = simulate(stream((0, 5, 1)), Flat(), limits())
    assert np.isnan(alone.statistics("tpot")["mean"])
    with pytest.raises(UnknownNameError, match="ttft"):
        run.statistics("ttftt")


def test_progress_ends_with_all_requests() -> None:
    seen: list[int] = []
    load = stream(*[(0.0, 1, 1)] * 2500)
    simulate(load, Smooth(), limits(), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 2500
    assert len(seen) >= 3


REFUSED: dict[str, tuple[Requests, dict[str, Any], str]] = {
    "none": (Requests(np.empty(0), np.empty(0, int), np.empty(0, int)), {}, "no requests"),
    "uneven": (Requests(np.zeros(2), np.ones(1, int), np.ones(2, int)), {}, "differ in number"),
    "unsorted": (stream((0, 1, 1), (2, 1, 1), (1, 1, 1)), {}, "request 2: it arrives at 1.0 s"),
    "no time": (stream((0, 1, 1), (float("nan"), 1, 1)), {}, "request 1: its arrival"),
    "no prompt": (stream((0, 1, 1), (0, 0, 1)), {}, "request 1: its prompt has 0"),
    "no output": (stream((0, 1, -3)), {}, "request 0: it requests -3"),
    "too long": (stream((0, 500, 13)), {}, "request 0: .* 513 tokens, more than the context of 512"),
    "too big": (stream((0, 1, 1), (0, 60, 5)), {"kv_blocks": 3}, "request 1: it needs 4 cache blocks"),
    "no blocks": (stream((0, 1, 1)), {"kv_blocks": 0}, "limits: kv_blocks is 0"),
    "small steps": (stream((0, 1, 1)), {"max_step_tokens": 7}, "max_step_tokens 7 is below max_sequences 8"),
    "far ahead": (stream((0, 1, 1)), {"lookahead": 2}, "lookahead is 2"),
    "time travel": (stream((0, 1, 1)), {"egress_s": -1.0}, "egress_s is -1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    load, changes, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        simulate(load, Flat(), limits(**changes))


def test_what_only_just_fits_is_served() -> None:
    run = simulate(stream((0, 48, 17)), Flat(), limits(kv_blocks=4, max_context=65, lookahead=1))
    assert run.peak_kv_blocks == 4


@pytest.mark.parametrize("cache", [CountedBlocks, HashedBlocks])
@pytest.mark.parametrize("policy", [ChunkedPolicy])
@pytest.mark.parametrize("lookahead", [0, 1])
def test_contract_of_policies(policy: Any, cache: Any, lookahead: int) -> None:
    """Deterministic, complete, in causal order, and blind to being watched."""
    rng = np.random.default_rng(7)
    load = Requests(np.sort(rng.uniform(0, 3, 150)), rng.integers(1, 150, 150), rng.integers(1, 50, 150))
    allowed = limits(lookahead=lookahead, kv_blocks=80, policy=policy, cache=cache)

    def go(**more: Any) -> ServingRun:
        return simulate(load, Cliffs(), allowed, **more)

    run, again, watched = go(), go(), go(record=Recorder())
    assert (run.finish_s == again.finish_s).all()
    assert (run.first_token_s == again.first_token_s).all()
    np.testing.assert_allclose(watched.finish_s, run.finish_s, rtol=1e-9)
    assert (run.scheduled_s >= load.arrival_s).all()
    assert (run.first_token_s > run.scheduled_s).all()
    assert ((run.finish_s > run.first_token_s) == (load.output_tokens > 1)).all()
    assert run.busy_s <= run.makespan_s * (1 + 1e-9)
    assert run.peak_kv_blocks <= allowed.kv_blocks
    assert run.peak_sequences <= allowed.max_sequences


def test_only_adapters_wait_for_the_device() -> None:
    """Sequences without drafts make a step another variant too, and nothing waits for them."""
    rng = np.random.default_rng(7)
    given = Requests(np.cumsum(rng.exponential(0.02, 60)), rng.integers(1, 200, 60), rng.integers(1, 60, 60))
    ragged = ServingLimits(
        kv_blocks=4000, max_sequences=12, max_step_tokens=64, max_context=512, policy=SteppedPolicy,
        drafts=3, draft_shares=((1.0, (0.5, 0.3, 0.1)),), draft_ragged=True,
    )  # fmt: skip
    found, waited, even = (
        simulate(given, Adapted(Cliffs()), each).finish_s
        for each in (ragged, replace(ragged, adapters_wait=True), replace(ragged, draft_ragged=False))
    )
    assert found.tolist() == waited.tolist()
    assert found.max() > even.max()
