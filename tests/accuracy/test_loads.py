"""A closed load keeps its number of clients busy, and its arrivals are its completions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gnomon.accuracy.loads import ClosedLoad, batch, serve
from gnomon.cost.step import StepCost
from gnomon.load.deployments import replica_of
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec.questions.parts import ServedQuestion
from gnomon.spec.serving import ServingLimits

Replica = tuple[StepCost, ServingLimits]
SETTINGS = {"max_model_len": 4096}


def made(model: str, on: str, **settings: Any) -> Replica:
    replica = replica_of(ServedQuestion(model=model, on=on, settings=SETTINGS | settings), "vllm")
    engine, deployment = replica.engine, replica.deploy()
    return engine.step_cost(deployment), engine.limits(deployment)


@pytest.fixture(scope="module")
def replica() -> Replica:
    return made("llama-3.1-8b", "H200")


def under_way(run: ServingRun) -> int:
    """The most requests that were asked for and not answered at once."""
    asked, answered = np.sort(run.requests.arrival_s), np.sort(run.finish_s)
    return int((np.arange(1, asked.size + 1) - np.searchsorted(answered, asked, side="right")).max())


def check(load: ClosedLoad, cost: StepCost, limits: ServingLimits, rounds: int = 10) -> ServingRun:
    """Never more under way than clients, and never fewer until the last have been sent; the simulator of open loads
    makes the same run of its arrivals."""
    run = serve(load, cost, limits, rounds)
    asked, answered = run.requests.arrival_s, np.sort(run.finish_s)
    assert len(run.requests) == rounds * load.clients
    assert (asked[: load.clients] == 0).all()
    assert (asked[load.clients :] == answered[: -load.clients]).all()
    assert under_way(run) == load.clients
    assert run.peak_sequences <= load.clients
    # A nanosecond later, so that whatever the rounding the answer that caused an arrival is before it.
    later = replace(run.requests, arrival_s=asked + 1e-9 * (asked > 0))
    again = simulate(later, cost, limits)
    for times in ("first_token_s", "finish_s", "scheduled_s"):
        np.testing.assert_allclose(getattr(again, times), getattr(run, times), atol=5e-9, err_msg=times)
    assert (again.preemptions, again.steps, again.totals) == (run.preemptions, run.steps, run.totals)
    return run


@pytest.mark.parametrize("clients", [1, 7, 32, 64])
def test_arrivals_are_completions(replica: Replica, clients: int) -> None:
    check(ClosedLoad(clients=clients, input_tokens=512, output_tokens=512, least=0.8), *replica)


@pytest.mark.parametrize(
    ("model", "on", "settings"),
    [
        ("llama-3.2-1b", "H100", {}),
        ("llama-3.2-1b", "H100", {"async_scheduling": False}),
        ("llama-3.2-1b", "H100", {"enforce_eager": True}),
        ("llama-3.2-1b", "H100", {"max_num_seqs": 16}),
        ("llama-3.2-1b", "H100", {"max_num_batched_tokens": 512}),
        ("llama-3.1-8b", "RTX-4090", {}),
        ("qwen3-30b-a3b", "H200", {}),
        ("gpt-oss-20b", "A100", {}),
    ],
)
@pytest.mark.parametrize(("given", "out"), [(2000, 16), (64, 512), (1024, 1024)])
def test_whatever_runs_and_however_full_it_is(
    model: str, on: str, settings: dict[str, Any], given: int, out: int
) -> None:
    """Light networks whose steps take the same with more requests swing most; a small card runs out of cache."""
    cost, limits = made(model, on, **settings)
    check(ClosedLoad(clients=48, input_tokens=given, output_tokens=out, least=0.5), cost, limits, rounds=5)


def test_a_cache_that_runs_full() -> None:
    run = check(
        ClosedLoad(clients=64, input_tokens=1024, output_tokens=2048), *made("llama-3.1-8b", "RTX-4090"), rounds=3
    )
    assert run.preemptions > 0


def test_one_client_is_one_request_after_another(replica: Replica) -> None:
    run = serve(ClosedLoad(clients=1, input_tokens=512, output_tokens=128), *replica)
    assert run.makespan_s == pytest.approx(run.e2e_s.sum(), rel=0.02)


def test_lengths_lie_between_a_share_of_the_nominal_one_and_it() -> None:
    given, made = ClosedLoad(clients=50, input_tokens=1000, output_tokens=100, least=0.8).lengths(10)
    assert (given.min(), given.max()) == (800, 1000)
    assert (made.min(), made.max()) == (80, 100)
    again, _ = ClosedLoad(clients=50, input_tokens=1000, output_tokens=100, least=0.8).lengths(10)
    assert (given == again).all()


def test_a_batch_begins_at_once(replica: Replica) -> None:
    run = batch(8, 256, 32, *replica)
    assert (run.requests.arrival_s == 0).all()
    assert run.output_tokens_per_s == pytest.approx(8 * 32 / run.makespan_s)
