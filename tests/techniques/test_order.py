"""Orders of waiting requests and routers by work, beside plain versions of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gnomon
from gnomon.engines.base import Case
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.sim.serving import ServingRun, simulate
from gnomon.sim.serving.routers import ReplicaLoad, RoutedRequest
from gnomon.sim.serving.routers.size import SizeRouter
from gnomon.sim.serving.routers.work import LeastWorkRouter
from gnomon.spec import Requests, Strategy
from gnomon.techniques import SERVING, applied

COUNT = 40
MODEL, ON = "llama-3.2-1b", "H100"


def load(seed: int, rate: float = 20.0) -> Requests:
    random = np.random.Generator(np.random.PCG64(seed))
    arrivals = np.cumsum(random.exponential(1 / rate, COUNT))
    return Requests(arrivals, random.integers(10, 900, COUNT), random.integers(2, 120, COUNT))


def served(stream: Requests, text: str, sequences: int = 1, blocks: int = 0) -> tuple[Requests, ServingRun]:
    """What clients send with a technique, and how a replica of so many sequences serves it."""
    engine, deployment = deploy(
        load_model(MODEL), parse_pool(ON), strategy=Strategy(techniques=(text,) if text else ()),
        settings={"max_num_seqs": sequences, "enable_prefix_caching": False},
    )  # fmt: skip
    sent = deployment.techniques.requests(stream, deployment)
    limits = engine.limits(deployment)
    blocks = blocks or limits.kv_blocks
    limits = replace(  # requests are seen at once, and tokens with the end of their step
        limits, kv_blocks=blocks, ingress_s=0.0, request_s=0.0, tokenize_s=0.0, egress_s=0.0, output_s=0.0,
        egress_sequence_s=0.0,
    )  # fmt: skip
    return sent, simulate(sent, engine.step_cost(deployment, sent.longest), limits)


def plain_order(run: ServingRun, key: Callable[[int], float]) -> list[int]:
    """One after the other: of those that the scheduler sees when the last one begins to leave, the first by key."""
    seen, left, order = run.requests.arrival_s, set(range(COUNT)), []
    for begun in np.sort(run.scheduled_s):
        waiting = [one for one in left if seen[one] <= begun]
        order.append(min(waiting, key=lambda one: (key(one), one)))
        left.remove(order[-1])
    return order


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by", ["output", "input+output"])
def test_the_shortest_that_waits_comes_in_next(seed: int, by: str) -> None:
    stream = load(seed)
    _, run = served(stream, f"shortest-first:by={by}")
    tokens = stream.output_tokens + (stream.input_tokens if by != "output" else 0)
    assert np.argsort(run.scheduled_s, kind="stable").tolist() == plain_order(run, lambda one: tokens[one])


@pytest.mark.parametrize("seed", range(4))
def test_the_nearest_deadline_comes_in_next(seed: int) -> None:
    stream = load(seed)
    _, run = served(stream, "deadline-first:base_s=0.5,token_ms=20")
    due = np.rint((stream.arrival_s - stream.arrival_s[0] + 0.5 + 0.02 * stream.output_tokens) * 1000)
    assert np.argsort(run.scheduled_s, kind="stable").tolist() == plain_order(run, lambda one: due[one])


@pytest.mark.parametrize("text", ["shortest-first", "deadline-first", "shortest-first:error=1"])
def test_every_request_is_served_once_also_where_blocks_run_out(text: str) -> None:
    stream = load(7, rate=200.0)
    _, plain = served(stream, "", 16, 160)
    sent, run = served(stream, text, 16, 160)
    assert run.preemptions, "blocks run out"
    assert (run.finish_s >= run.first_token_s).all() and (run.first_token_s > stream.arrival_s).all()
    assert run.totals.decodes >= plain.totals.decodes - run.preemptions - plain.preemptions
    assert (sent.output_tokens == stream.output_tokens).all() and (sent.input_tokens == stream.input_tokens).all()


def test_shortest_first_lowers_the_mean_time_to_a_first_token() -> None:
    stream = load(3)
    means = [served(stream, text)[1].ttft_s.mean() for text in ("", "shortest-first")]
    assert means[1] < 0.8 * means[0]


def test_priorities_of_the_load_stay_above_the_order() -> None:
    stream = replace(load(1), priority=np.arange(COUNT) % 2)
    sent, _ = served(stream, "shortest-first")
    assert sent.priority is not None and stream.priority is not None
    assert sent.priority[stream.priority == 0].max() < sent.priority[stream.priority == 1].min()


def test_turns_have_the_deadline_of_their_session() -> None:
    follows = np.full(COUNT, -1)
    follows[20:] = np.arange(20)
    stream = replace(load(2), follows=follows)
    case = Case(model=load_model(MODEL), pool=parse_pool(ON))
    due = applied(SERVING, ["deadline-first"]).requests(stream, case).priority
    assert due is not None and (due[20:] == due[:20]).all() and len(set(due.tolist())) > 10


def test_work_goes_where_it_is_done_first() -> None:
    """Beside a plain sum over the requests that are unfinished, the oldest of which end first."""
    random = np.random.Generator(np.random.PCG64(5))
    loads = [ReplicaLoad(1.0), ReplicaLoad(2.0), ReplicaLoad(0.5)]
    router = LeastWorkRouter(answer=10.0)
    before: list[list[float]] = [[], [], []]
    for number in range(300):
        for load_, held in zip(loads, before, strict=True):
            ended = min(int(random.integers(0, 3)), load_.unfinished)
            load_.unfinished -= ended
            del held[:ended]
        asked = RoutedRequest(number, int(random.integers(1, 5000)), (), int(random.integers(1, 500)))
        work = asked.tokens + 10.0 * asked.answer
        times = [(sum(held) + work) / one.weight for one, held in zip(loads, before, strict=True)]
        chosen = router.choose(asked, loads)
        assert chosen == int(np.argmin(times))
        before[chosen].append(work)
        loads[chosen].unfinished += 1


def plain_reserving(stream: Requests, run: ServingRun, blocks: int, block: int) -> list[bool]:
    """Whether each request that came in found room beside all that had come in and not left by then."""
    held = -(-(stream.input_tokens + stream.output_tokens) // block)
    found = []
    for one in range(COUNT):
        begun = run.scheduled_s[one]
        before = (run.scheduled_s < begun) | ((run.scheduled_s == begun) & (np.arange(COUNT) < one))
        inside = before & (run.finish_s > begun)
        found.append(bool(held[inside].sum() + held[one] <= blocks or not inside.any()))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_what_is_reserved_never_exceeds_the_cache(seed: int) -> None:
    stream, blocks = load(seed, rate=200.0), 160
    _, plain = served(stream, "", 16, blocks)
    _, run = served(stream, "reserve-output", 16, blocks)
    assert plain.preemptions and not run.preemptions
    assert all(plain_reserving(stream, run, blocks, 16)) and not all(plain_reserving(stream, plain, blocks, 16))
    assert np.argsort(run.scheduled_s, kind="stable").tolist() == list(range(COUNT)), "first come, first served"
    assert run.totals.decodes + run.totals.prefills >= int(stream.output_tokens.sum())


def test_nothing_reserved_is_the_plain_scheduler() -> None:
    stream = replace(load(5, rate=50.0))
    plain, none = (served(stream, text, 8)[1] for text in ("", "reserve-output:share=0"))
    assert (plain.finish_s == none.finish_s).all()


def test_sizes_go_to_replicas_of_their_own() -> None:
    """Short requests to the slower half, each part to the fewest unfinished for its speed, beside a plain choice."""
    random = np.random.Generator(np.random.PCG64(6))
    loads = [ReplicaLoad(weight) for weight in (2.0, 1.0, 1.0, 4.0)]
    router = SizeRouter(tokens=1000, share=0.5)
    for number in range(300):
        for one in loads:
            one.unfinished = int(random.integers(0, 9))
        asked = RoutedRequest(number, int(random.integers(1, 2000)), (), int(random.integers(1, 400)))
        group = (1, 2) if asked.tokens + asked.answer <= 1000 else (0, 3)
        best = min(loads[at].unfinished / loads[at].weight for at in group)
        first = next(at for at in group if loads[at].unfinished / loads[at].weight == best)
        assert router.choose(asked, loads) == first
    assert router.choose(asked, loads[:1]) == 0


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
@pytest.mark.parametrize("name", ["shortest-first", "deadline-first"])
def test_schedulers_without_priorities_refuse_an_order(engine: str, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} does not apply: the scheduler of this engine .* without priorities"):
        gnomon.simulate_serving(
            "llama-3.1-8b", on="H100", engine=engine, rate=2, input=64, output=8, requests=20, techniques=[name]
        )


@pytest.mark.parametrize("settings", [{}, {"speculative_method": "ngram"}, {"enable_lora": True}])
def test_every_scheduler_of_vllm_takes_an_order(settings: dict[str, Any]) -> None:
    found = gnomon.simulate_serving(
        "llama-3.1-8b", on="H100", rate=2, input=64, output=8, requests=20, settings=settings,
        techniques=["shortest-first"],
    )  # fmt: skip
    assert not [one for one in found.not_modelled if "priority" in str(one)]
