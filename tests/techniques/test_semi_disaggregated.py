"""Prompts and decodes at once on one GPU: seconds of such steps by hand, and what a load gains and pays."""

from __future__ import annotations

import numpy as np
import pytest

from gnomon.cost.shared import SharedStepCost
from gnomon.cost.table import TableStepCost
from gnomon.engines import Deployment, Engine
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.sim.serving import Recorder, ServingRun, simulate
from gnomon.spec import Requests, Strategy

MODEL, ON, COUNT = "llama-3.1-8b", "H100", 200


def requests(rate: float) -> Requests:
    random = np.random.Generator(np.random.PCG64(3))
    arrivals = np.cumsum(random.exponential(1 / rate, COUNT))
    return Requests(arrivals, random.integers(1000, 6000, COUNT), random.integers(50, 300, COUNT))


def deployed(text: str) -> tuple[Engine, Deployment]:
    strategy = Strategy(techniques=(text,) if text else ())
    return deploy(load_model(MODEL), parse_pool(ON), strategy=strategy)


def cost(text: str = "") -> TableStepCost:
    engine, deployment = deployed(text)
    found = engine.step_cost(deployment, 8192)
    assert isinstance(found, TableStepCost)
    return found


def served(text: str, rate: float, record: Recorder | None = None) -> ServingRun:
    engine, deployment = deployed(text)
    return simulate(requests(rate), engine.step_cost(deployment, 8192), engine.limits(deployment), record=record)


@pytest.mark.parametrize("share", [0.2, 0.8, 1.0])
@pytest.mark.parametrize(("decodes", "chunk"), [(1, 16), (64, 512), (200, 64), (8, 4096)])
def test_a_step_takes_what_the_slower_of_both_takes(share: float, decodes: int, chunk: int) -> None:
    plain, shared = cost(), cost(f"semi-disaggregated:share={share}")
    assert isinstance(shared, SharedStepCost)
    context = 1000 * decodes
    prompt_s, clocked, prompt_j = plain.mixed_work(0, 0, [(chunk, 0)])
    decode_s, decode_clocked, decode_j = plain.decode_work(decodes, context)
    slower = prompt_s - clocked + clocked / share
    wanted = max(slower, decode_s, prompt_s - clocked + decode_s - decode_clocked)
    seconds, _, joules = shared.mixed_work(decodes, context, [(chunk, 0)])
    assert seconds == pytest.approx(wanted) and joules == pytest.approx(prompt_j + decode_j)
    assert shared.mixed(0, 0, [(chunk, 0)]) == pytest.approx(slower)
    assert shared.decode_work(decodes, context) == plain.decode_work(decodes, context)
    assert max(prompt_s, decode_s) <= seconds


def test_all_draws_are_shared() -> None:
    drawn = cost("semi-disaggregated:share=0.5").drawn(3)
    plain = cost().drawn(3)
    seconds, clocked, _ = plain.mixed_work(0, 0, [(2048, 0)])
    assert drawn.mixed(0, 0, [(2048, 0)]) > seconds and clocked > 0


def test_decodes_do_not_wait_for_prompts_and_prompts_take_longer() -> None:
    plain, shared = served("", 10.0), served("semi-disaggregated", 10.0)
    assert shared.statistics("tpot")["p99"] < 0.8 * plain.statistics("tpot")["p99"]
    assert shared.statistics("ttft")["mean"] > plain.statistics("ttft")["mean"]


def test_beside_decodes_a_step_has_its_piece_and_every_token_is_made() -> None:
    record = Recorder()
    run = served("semi-disaggregated:chunk=384", 10.0, record)
    both = [step for step in record.steps if step.decodes and step.chunks]
    assert both and all(sum(new for new, _ in step.chunks) <= 384 for step in both)
    assert any(sum(new for new, _ in step.chunks) > 384 for step in record.steps if not step.decodes)
    prompts = sum(new for step in record.steps for new, _ in step.chunks)
    assert prompts == int(run.requests.input_tokens.sum()) and not run.preemptions
    assert sum(step.decodes for step in record.steps) == int((run.requests.output_tokens - 1).sum())
