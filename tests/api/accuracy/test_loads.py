"""A closed load keeps its number of clients busy, and its arrivals are its completions."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.api.accuracy.loads import ClosedLoad, batch, serve
from gnomon.api.deploy import deploy_named


@pytest.fixture(scope="module")
def replica() -> tuple:  # type: ignore[type-arg]
    engine, deployment, _ = deploy_named(
        "llama-3.1-8b", "H200", dtype=None, kv_dtype=None, engine="vllm", settings={"max_model_len": 4096}
    )
    return engine.step_cost(deployment), engine.limits(deployment)


@pytest.mark.parametrize("clients", [1, 7, 32])
def test_arrivals_are_completions(replica: tuple, clients: int) -> None:  # type: ignore[type-arg]
    run = serve(ClosedLoad(clients=clients, input_tokens=512, output_tokens=512, least=0.8), *replica)
    arrivals, finished = run.requests.arrival_s, np.sort(run.finish_s)
    assert len(run.requests) == 10 * clients
    assert (arrivals[:clients] == 0).all()
    assert np.abs(arrivals[clients:] - finished[:-clients]).mean() <= 0.005 * run.e2e_s.mean()
    assert run.peak_sequences <= clients + 2


def test_one_client_is_one_request_after_another(replica: tuple) -> None:  # type: ignore[type-arg]
    run = serve(ClosedLoad(clients=1, input_tokens=512, output_tokens=128), *replica)
    assert run.makespan_s == pytest.approx(run.e2e_s.sum(), rel=0.02)


def test_lengths_lie_between_a_share_of_the_nominal_one_and_it() -> None:
    given, made = ClosedLoad(clients=50, input_tokens=1000, output_tokens=100, least=0.8).lengths(10)
    assert (given.min(), given.max()) == (800, 1000)
    assert (made.min(), made.max()) == (80, 100)
    again, _ = ClosedLoad(clients=50, input_tokens=1000, output_tokens=100, least=0.8).lengths(10)
    assert (given == again).all()


def test_a_batch_begins_at_once(replica: tuple) -> None:  # type: ignore[type-arg]
    run = batch(8, 256, 32, *replica)
    assert (run.requests.arrival_s == 0).all()
    assert run.output_tokens_per_s == pytest.approx(8 * 32 / run.makespan_s)
