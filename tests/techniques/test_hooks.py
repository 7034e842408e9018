"""Every hook of the contract is reached: toys that change one thing each, seen by all that should see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml

import gnomon
from gnomon.cost.lines import Steps, Wait
from gnomon.engines import operations_of, serving_engines
from gnomon.engines.base import Case, MemoryUse, ServingCase
from gnomon.engines.training import RankMemory
from gnomon.engines.training.case import TrainingCase
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
registry = import_module("gnomon.techniques")
registry_caches = (registry.techniques, registry._by_any_name, registry._named, registry._parsed)
STARTED = tuple(name for name in serving_engines() if operations_of(name))
"""Engines whose loads are simulated; the others run static batches."""
FIRST, *OTHERS = STARTED
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


class Settled(Toy):
    """A setting that an engine has, and no word more."""

    def rewrite(self, case: Any, values: Any) -> Any:
        return replace(case, settings={**case.settings, "max_num_seqs": 7})

    def expressed_by_config(self, values: Any) -> bool:
        return True


class Slower(Toy):
    """Kernels of a step that run twice, and updates that take twice as long."""

    def costs(self, found: Any, case: Case, values: Any) -> Any:
        if isinstance(case, TrainingCase):
            return replace(found, optimizer_s=2 * found.optimizer_s)
        return replace(found, graph=found.graph.rewrite(lambda op: (op, op)))

    def traits(self, case: TrainingCase, values: Any) -> Any:
        return replace(case.traits, spare=0.25)


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


@pytest.mark.heavy
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


@pytest.mark.heavy
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
    if engine not in STARTED:
        return
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


@pytest.mark.parametrize("one", [OneAtATime, Forgetful, Halved, ToTheFirst])
def test_what_only_changes_a_load_is_not_tried_on_a_step(outside: dict[str, Any], one: type[Toy]) -> None:
    use(outside, one)
    with pytest.raises(InputError, match=r"a step is the same with it. Compare `gnomon simulate serve`"):
        gnomon.try_idea("toy", model=MODEL, on="H100")


def test_fields_of_disks_are_listed_where_nothing_is_kept_there(outside: dict[str, Any], tmp_path: Path) -> None:
    host = {"cores": 64, "memory_gib": 512, "memory_gb_s": 300, "adam_gparam_s": 4, "nvme_tb": 4, "nvme_read_gb_s": 6,
            "nvme_write_gb_s": 3, "link": "PCIe 4.0 x16", "link_sharing": 2}  # fmt: skip
    file = tmp_path / "own.yaml"
    said = {"schema": "gnomon.cluster/1", "chip": "H100", "count": 8, "per_node": 8, "host": host}
    file.write_text(yaml.safe_dump(said))
    for one, listed in ((Kept, True), (OnDisk, False)):
        names = use(outside, one)
        for function in registry_caches:
            function.cache_clear()
        found = gnomon.fit(MODEL, on=str(file), techniques=names)
        trained = gnomon.simulate_training(MODEL, on=str(file), seq=2048, global_batch=16, techniques=names)
        for answer in (found, trained):
            assert any("nvme_tb" in each.option for each in answer.not_modelled) is listed


def test_costs_and_traits_are_seen(outside: dict[str, Any]) -> None:
    names = use(outside, Slower)
    for engine in serving_engines():
        words = {"on": "H100", "engine": engine, "phase": "prefill", "tokens": 4096}
        plain, slower = (gnomon.predict(MODEL, **words, techniques=each).time_s.value for each in ([], names))
        assert 1.6 < slower / plain < 2.1
    load = {"on": "H100:8", "seq": 2048, "global_batch": 16}
    plain, slower = (gnomon.simulate_training(MODEL, **load, techniques=each) for each in ([], names))
    assert slower.step_parts["optimizer_s"] == pytest.approx(2 * plain.step_parts["optimizer_s"])
    assert slower.usable_memory_bytes < 0.8 * plain.usable_memory_bytes


def test_what_files_do_not_say_is_left_out_by_name(outside: dict[str, Any]) -> None:
    """A setting that a technique brings is in the plan's files only if the plan says it too."""
    names = use(outside, Settled)
    plan = Plan(
        model=MODEL, chip="H100-SXM-80GB", replicas=1, strategy=Strategy(techniques=tuple(names)), dtype="bf16",
        kv_dtype="bf16", engine=EngineChoice(name="vllm"),
        load=ServingLoad(requests=10, rate_per_s=1.0, input_tokens=64, output_tokens=64),
    )  # fmt: skip
    assert "the technique toy" in gnomon.export(plan).not_expressed
    said = replace(plan, engine=EngineChoice(name="vllm", settings={"max_num_seqs": 7}))
    assert "the technique toy" not in gnomon.export(said).not_expressed
