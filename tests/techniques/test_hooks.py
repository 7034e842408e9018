"""Every hook of the contract is reached: toys that change one thing each, seen by all that should see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

import gnomon
from gnomon.cost.lines import Steps, Wait
from gnomon.engines import serving_engines
from gnomon.engines.base import Case, MemoryUse, ServingCase
from gnomon.engines.training import RankMemory
from gnomon.errors import DoesNotFitError, InputError
from gnomon.graph.layers import NodePass, Writer
from gnomon.graph.tape import TapeNode
from gnomon.load.serving import task_of
from gnomon.planning.serving.one_plan import plan_under
from gnomon.sim.serving.caches.counted import CountedBlocks
from gnomon.sim.serving.routers import ReplicaLoad, RoutedRequest
from gnomon.spec import EngineChoice, Plan, Requests, ServingLoad, Strategy
from gnomon.techniques import SERVING, TRAINING, AnyTechnique, Technique

MODEL = "llama-3.2-1b"
LOAD: dict[str, Any] = {"rate": 30.0, "input": 300, "output": 40, "requests": 30}
TiB = 2.0**40
FIRST, *OTHERS = serving_engines()
UNDER_LOAD = (FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS))


class Toy(Technique[Any]):
    name = title = "toy"
    idea = "A toy."
    work = (SERVING, TRAINING)


class OneAtATime(Toy):
    """A scheduler that lets one request in."""

    def policy(self, make: Any, case: ServingCase, values: Any) -> Any:
        return lambda requests, limits, cache: make(requests, replace(limits, max_sequences=1), cache)


class Forgetful(Toy):
    """A KV cache in which nothing is found again."""

    def cache(self, make: Any, case: ServingCase, values: Any) -> Any:
        return CountedBlocks


class Halved(Toy):
    """Clients that send half of every prompt."""

    def requests(self, found: Requests, case: Case, values: Any) -> Requests:
        return replace(found, input_tokens=np.maximum(found.input_tokens // 2, 1))


class ToTheFirst(Toy):
    """A router that sends everything to one replica."""

    load_aware = True

    def choose(self, request: RoutedRequest, loads: Iterable[ReplicaLoad]) -> int:
        return 0

    def router(self, make: Any, case: Case, values: Any) -> Any:
        return lambda seed: self


class Windowed(Toy):
    """Sequences that keep a quarter of their tokens."""

    def kv_cache(self, used: MemoryUse, case: ServingCase, values: Any) -> MemoryUse:
        return replace(used, sequence_blocks=lambda tokens, new: -(-tokens // (4 * used.block_tokens)))


class Doubled(Toy):
    """Every GEMM of the layers twice, in serving and in training."""

    def program(self, case: Case, values: Any) -> NodePass:
        def twice(part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
            if part != "layer":
                return nodes
            return [replace(node, forward=(*node.forward, *node.forward)) for node in nodes]

        return twice


class Kept(Toy):
    """A GiB of every rank on its chip, in its host's memory or on its disks."""

    tier: ClassVar[str] = "host"
    size: ClassVar[float] = 2.0**30

    def memory(self, used: Any, case: Case, values: Any) -> Any:
        return replace(used, **{self.tier: getattr(used, self.tier) + self.size})


class OnDisk(Kept):
    tier = "nvme"


class OnChip(Kept):
    tier = "activations"


class Late(Toy):
    """A tenth of every step on top of it."""

    simulated = False

    def waits(self, steps: Steps, case: Case, values: Any) -> Wait:
        return Wait(seconds=0.1 * steps.seconds, source="a toy")

    def metrics(self, used: MemoryUse | RankMemory, case: Case, values: Any) -> dict[str, float]:
        return {"turn_s": 2.0, "kept": 3.0}

    def assumed(self, case: Case, values: Any) -> str:
        return "a toy's assumption"


def use(outside: dict[str, Any], one: type[Toy]) -> list[str]:
    outside["toy"] = one()
    return ["toy"]


def serve(**more: Any) -> Any:
    return gnomon.simulate_serving(MODEL, on="H100", **{**LOAD, **more})


@pytest.mark.parametrize("engine", UNDER_LOAD)
def test_a_scheduler_is_wrapped_under_every_engine(outside: dict[str, Any], engine: str) -> None:
    names = use(outside, OneAtATime)
    plain, alone = serve(engine=engine), serve(engine=engine, techniques=names)
    assert plain.run.peak_sequences > 1 == alone.run.peak_sequences
    assert alone.ttft_s["p50"] > plain.ttft_s["p50"]


@pytest.mark.parametrize("engine", UNDER_LOAD)
def test_a_cache_is_replaced_or_refused_under_every_engine(outside: dict[str, Any], engine: str) -> None:
    names, shared = use(outside, Forgetful), {"prefix": "groups=2,tokens=256", "engine": engine}
    if engine == "sglang":
        with pytest.raises(InputError, match="its radix tree alone"):
            serve(**shared, techniques=names)
        return
    assert serve(**shared).cache_hit_rate > 0 == serve(**shared, techniques=names).cache_hit_rate


def judged(names: list[str], replicas: int = 1, **load: Any) -> Any:
    """The figures of one plan, as `compare` and a search have them."""
    plan = Plan(
        model=MODEL,
        chip="H100-SXM-80GB",
        replicas=replicas,
        strategy=Strategy(techniques=tuple(names)),
        dtype="bf16",
        kv_dtype="bf16",
        engine=EngineChoice(name="vllm"),
        load=ServingLoad(requests=150, **load),
    )
    return plan_under(plan, task_of(plan)).predicted


def test_a_plan_is_judged_with_its_scheduler(outside: dict[str, Any]) -> None:
    load = {"rate_per_s": 3.0, "input_tokens": 300, "output_tokens": 100}
    plain, alone = (judged(names, **load)["ttft_s"]["p90"].value for names in ([], use(outside, OneAtATime)))
    assert alone > 2 * plain


def test_what_clients_send_is_changed_for_simulations_and_plans(outside: dict[str, Any]) -> None:
    names = use(outside, Halved)
    found = serve(techniques=names)
    np.testing.assert_array_equal(found.run.requests.input_tokens, 150)
    pools = [gnomon.simulate_serving(MODEL, pools=["H100:2,tp=1"], **LOAD, techniques=each) for each in ([], names)]
    moved = [one.total_tokens_per_s - one.output_tokens_per_s for one in pools]
    assert moved[1] == pytest.approx(0.5 * moved[0], rel=0.05)
    load = {"rate_per_s": 2.0, "input_tokens": 8000, "output_tokens": 10}
    plain, half = (judged(each, **load)["ttft_s"]["p50"].value for each in ([], names))
    assert half < 0.7 * plain


def test_requests_go_where_a_router_sends_them(outside: dict[str, Any]) -> None:
    plain, one = (
        gnomon.simulate_serving(MODEL, pools=["H100:2,tp=1"], **LOAD, techniques=names)
        for names in ([], use(outside, ToTheFirst))
    )
    assert one.tpot_s["p50"] > plain.tpot_s["p50"]
    load = {"rate_per_s": 20.0, "input_tokens": 2000, "output_tokens": 20, "replicas": 2}
    both, first = (judged(names, **load)["tpot_s"]["p50"].value for names in ([], ["toy"]))
    assert first > 1.1 * both


@pytest.mark.parametrize("engine", serving_engines())
def test_a_cache_that_keeps_less_holds_more_sequences(outside: dict[str, Any], engine: str) -> None:
    names = use(outside, Windowed)
    plain, kept = (gnomon.fit(MODEL, on="H100", engine=engine, techniques=each) for each in ([], names))
    assert kept.max_batch_1k > 2 * plain.max_batch_1k


@pytest.mark.parametrize("engine", UNDER_LOAD)
def test_a_pass_is_seen_by_a_step_and_a_load(outside: dict[str, Any], engine: str) -> None:
    names = use(outside, Doubled)
    steps = [
        gnomon.predict(MODEL, on="H100", engine=engine, phase="prefill", tokens=4096, techniques=each).time_s.value
        for each in ([], names)
    ]
    assert 1.6 < steps[1] / steps[0] < 2.1
    loads = [serve(engine=engine, requests=5, rate=0.1, techniques=each).tpot_s["p50"] for each in ([], names)]
    assert 1.1 < loads[1] / loads[0] < 2.1


def test_a_pass_of_both_is_seen_by_training_too(outside: dict[str, Any]) -> None:
    load = {"on": "H100:8", "seq": 2048, "global_batch": 16}
    plain, twice = (gnomon.simulate_training(MODEL, **load, techniques=names) for names in ([], use(outside, Doubled)))
    assert twice.step.flops["model"] > 1.5 * plain.step.flops["model"]


@pytest.mark.parametrize("one", [Kept, OnDisk, OnChip])
def test_bytes_are_kept_in_their_tier(outside: dict[str, Any], one: type[Kept]) -> None:
    names, ranks = use(outside, one), 8
    expected = {tier: ranks * one.size * (one.tier == tier) for tier in ("host", "nvme")}
    for engine in serving_engines():
        plain, found = (gnomon.fit(MODEL, on="H100:8", tp=8, engine=engine, techniques=each) for each in ([], names))
        assert {"host": found.host_bytes, "nvme": found.nvme_bytes} == expected
        assert found.parts["activations"] - plain.parts["activations"] == pytest.approx(one.size * (one is OnChip))
        assert (found.parts["kv"] < plain.parts["kv"]) == (one is OnChip)
    load = {"on": "H100:8", "seq": 2048, "global_batch": 16}
    plain, trained = (gnomon.simulate_training(MODEL, **load, techniques=each) for each in ([], names))
    assert {"host": trained.host_bytes, "nvme": trained.nvme_bytes} == expected
    added = trained.peak_memory_bytes.value - plain.peak_memory_bytes.value
    assert added == pytest.approx(one.size * (one is OnChip), rel=1e-6)


@pytest.mark.parametrize("one", [Kept, OnDisk])
def test_a_tier_without_room_is_named(
    outside: dict[str, Any], one: type[Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    names, tier = use(outside, one), {"host": "host memory", "nvme": "NVMe"}[one.tier]
    monkeypatch.setattr(one, "size", 100 * TiB)
    found = gnomon.fit(MODEL, on="H100", techniques=names)
    assert not found.fits and found.cause is not None and found.cause.part == tier
    step = gnomon.predict(MODEL, on="H100", batch=1, context=10, techniques=names)
    assert not step.fits and step.cause is not None and step.cause.part == tier
    with pytest.raises(DoesNotFitError, match=tier):
        serve(techniques=names)
    load: dict[str, Any] = {"seq": 2048, "global_batch": 16, "techniques": names}
    trained = gnomon.simulate_training(MODEL, on="H100:8", **load)
    assert not trained.fits and trained.cause is not None and trained.cause.part == tier
    with pytest.raises(DoesNotFitError, match="the hosts' " + {"host": "memory", "nvme": "NVMe"}[one.tier]):
        gnomon.plan_training(MODEL, cluster="H100:8", **load)


def test_waits_metrics_and_assumptions_are_in_answers(outside: dict[str, Any]) -> None:
    names = use(outside, Late)
    plain, late = (gnomon.predict(MODEL, on="H100", batch=4, context=100, techniques=each) for each in ([], names))
    assert late.time_s.value == pytest.approx(1.1 * plain.time_s.value)
    assert any(one.option == "--with toy" and one.why == "a toy's assumption" for one in late.not_modelled)
    assert gnomon.fit(MODEL, on="H100", techniques=names).techniques == {"toy": {"turn_s": 2.0, "kept": 3.0}}
    load = {"on": "H100:8", "seq": 2048, "global_batch": 16}
    plain, late = (gnomon.simulate_training(MODEL, **load, techniques=each) for each in ([], names))
    assert late.step_time_s.value == pytest.approx(1.1 * plain.step_time_s.value)
    assert late.techniques == {"toy": {"turn_s": 2.0, "kept": 3.0}} and late.assumed == ("toy: a toy's assumption",)
    with pytest.raises(InputError, match="cannot be simulated under load"):
        serve(techniques=names)


def test_one_of_both_is_tried_in_the_work_that_is_asked_for(outside: dict[str, Any]) -> None:
    use(outside, Doubled)
    served = gnomon.try_idea("toy", model=MODEL, on="H100", batch=4)
    trained = gnomon.try_idea("toy", model=MODEL, on="H100", seq=2048, global_batch=4)
    assert served.serving and not trained.serving and served.gain and trained.gain
    assert max(served.gain.value, trained.gain.value) < 1
    known: AnyTechnique = outside["toy"]
    assert known.work == (SERVING, TRAINING)
