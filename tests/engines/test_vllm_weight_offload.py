"""Weights of vLLM in the host's memory: what moves there, what it needs of the host, and what steps take."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

import gnomon
from gnomon.engines.vllm import launch
from gnomon.engines.vllm.weight_offload import LayerParameter, device_bytes, host_bytes, offloaded, parameters
from gnomon.engines.vllm.weights import layer_bytes, stages, weight_bytes
from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.deployments import deploy
from gnomon.spec import Plan, Strategy
from gnomon.spec.plan import EngineChoice

GIB = 1024.0**3
MODELS = ("qwen2.5-7b", "llama-3.1-8b", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "glm-4.5-air")
STEP = {"on": "H200", "phase": "decode", "batch": 8, "context": 1024}


def deployed(name: str, settings: Mapping[str, Any], on: str = "H200:1", **degrees: int) -> Any:
    pool, model = parse_pool(on), load_model(name)
    return deploy(model, pool, strategy=Strategy(**degrees), dtype=model.dtype, kv_dtype="bf16", settings={**settings})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tp", [1, 2])
def test_parameters_are_the_weights_of_a_layer(name: str, tp: int) -> None:
    model = load_model(name)
    for block in model.blocks:
        found = parameters(block, model, Strategy(tp=tp), "Hopper")
        assert sum(one.bytes for one in found) == pytest.approx(layer_bytes(block, model, Strategy(tp=tp), "Hopper"))
        assert len({one.name for one in found}) == len(found)


@pytest.mark.parametrize("name", MODELS[:4])
def test_as_many_bytes_move_as_are_asked_for(name: str) -> None:
    """Whole parameters, of the first layers, until the bytes are reached; never more than all layers."""
    (stage,) = stages(load_model(name), 1)
    largest = max(one.bytes for one in parameters(stage.layers[-1], load_model(name), Strategy()))
    most = sum(layer_bytes(layer, load_model(name), Strategy()) for layer in stage.layers)
    before = 0.0
    for gib in (0.5, 1.0, 4.0, 7.9, 12.0, 60.0):
        _, deployment = deployed(name, {"cpu_offload_gb": gib}, on="B200:1")
        moved = device_bytes(deployment, stage)
        wanted = min(gib * GIB, most)
        assert max(wanted, before) - 1e-3 <= moved < wanted + largest
        assert list(offloaded(deployment, stage)) == list(range(len(offloaded(deployment, stage))))
        before = moved


def test_nothing_changes_without_weights_on_the_host() -> None:
    none = gnomon.predict("qwen2.5-7b", **STEP)
    for settings in ({"cpu_offload_gb": 0}, {"offload_backend": "uva"}, {"offload_group_size": 0}):
        found = gnomon.predict("qwen2.5-7b", settings=settings, **STEP)
        assert found.time_s.value == none.time_s.value
        assert found.memory_parts == none.memory_parts
        assert [one.op for one in found.breakdown] == [one.op for one in none.breakdown]


@pytest.mark.parametrize(
    "grown",
    [
        [{"cpu_offload_gb": gib} for gib in (0, 0.2, 1, 4, 9, 13)],
        [{"offload_group_size": size} for size in (0, 28, 14, 7, 4, 2, 1)],
        [{"offload_group_size": 8, "offload_num_in_group": of} for of in (1, 2, 4, 8)],
    ],
)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_more_on_the_host_is_never_faster_and_leaves_more_for_the_cache(
    grown: list[dict[str, Any]], phase: str
) -> None:
    asked = STEP if phase == "decode" else {"on": "H200", "phase": "prefill", "batch": 1, "tokens": 2048}
    times = [gnomon.predict("qwen2.5-7b", settings=settings, **asked).time_s.value for settings in grown]
    assert all(after >= before for before, after in pairwise(times))
    assert times[-1] > 1.5 * times[0]
    room = [gnomon.fit("qwen2.5-7b", on="H200", settings=settings).parts["kv"] for settings in grown]
    assert all(after > before for before, after in pairwise(room[1:]))
    held = [host_bytes(deployed("qwen2.5-7b", settings)[1]) for settings in grown]
    assert all(after >= before for before, after in pairwise(held))


def test_pinned_memory_comes_in_powers_of_two() -> None:
    for size, taken in ((1.0, 1), (4096.0, 4096), (4097.0, 8192), (2.25 * GIB, 4 * GIB)):
        assert LayerParameter(name="", bytes=size).host_bytes == taken
    _, deployment = deployed("qwen2.5-7b", {"cpu_offload_gb": 8})
    (stage,) = stages(deployment.model, 1)
    assert device_bytes(deployment, stage) < host_bytes(deployment) < 2 * device_bytes(deployment, stage)


def test_copies_go_into_buffers_on_the_chip() -> None:
    """Each step ahead takes one more layer."""
    sizes = []
    for ahead in (1, 2, 3):
        _, one = deployed("qwen2.5-7b", {"offload_group_size": 4, "offload_prefetch_step": ahead})
        sizes.append(device_bytes(one, stages(one.model, 1)[0]))
    layer = layer_bytes(one.model.blocks[0], one.model, Strategy())
    assert sizes == pytest.approx([6 * layer, 5 * layer, 4 * layer])


def test_ranks_of_a_host_share_its_memory() -> None:
    fits = {"cpu_offload_gb": 70, "max_model_len": 4096}
    for degrees in ({"tp": 8}, {"tp": 4, "pp": 2}, {"tp": 2}):
        _, one = deployed("llama-3.1-405b", fits, on="H200:8", **degrees)
        assert host_bytes(one) > 8 * 70 * GIB
    with pytest.raises(InputError, match="weights on the host take"):
        deployed("llama-3.1-405b", {"cpu_offload_gb": 90, "kv_offloading_size": 1200}, on="H200:8", tp=8)


def test_a_search_leaves_out_what_the_host_does_not_hold() -> None:
    """Whole layers of a 405B model on each of eight chips are more than their host has; halves of them are not."""
    settings = {"offload_group_size": 2, "max_model_len": 4096}
    for tp, held in ((1, False), (2, False), (4, True), (8, True)):
        if held:
            deployed("llama-3.1-405b", settings, on="H200:8", tp=tp)
        else:
            with pytest.raises(InputError, match="weights on the host take"):
                deployed("llama-3.1-405b", settings, on="H200:8", tp=tp)
    found = gnomon.plan_serving(
        "llama-3.1-405b", fleet="H200:8", rate=0.05, input=200, output=10, requests=20, dtypes=["bf16"],
        slo="ttft_p90=60s", settings={**settings, "max_num_seqs": 64, "max_num_batched_tokens": 2048},
    )  # fmt: skip
    assert "TP 4" in found.best.label or "TP 8" in found.best.label


def test_stages_offload_their_own_layers() -> None:
    settings = {"cpu_offload_gb": 3.0}
    engine, deployment = deployed("llama-3.1-8b", settings, on="H200:2", pp=2)
    for stage, work in zip(stages(deployment.model, 2), engine.stages(deployment), strict=True):
        assert device_bytes(deployment, stage) == pytest.approx(3 * GIB, rel=0.05)
        assert any(op.kind == "host_read" for op in work.graph.ops)
    whole = weight_bytes(deployment.model, deployment.strategy, stages(deployment.model, 2)[0])
    assert engine.memory(deployment).parts["weights"] < whole - 2.8 * GIB
    found = gnomon.predict("llama-3.1-8b", on="H200:2", pp=2, tp=1, phase="decode", batch=8, settings=settings)
    alone = gnomon.predict("llama-3.1-8b", on="H200", phase="decode", batch=8, settings={"cpu_offload_gb": 6.0})
    assert found.time_s.value == pytest.approx(alone.time_s.value, rel=0.05)
    prefetched = {"offload_group_size": 4}
    engine, deployment = deployed("llama-3.1-8b", prefetched, on="H200:2", pp=2)
    every = engine.step_model(deployment).prefetch
    each = [engine.step_model(deployment, stage).prefetch for stage in engine.stages(deployment)]
    assert every.bytes == pytest.approx(sum(one.bytes for one in each))


def test_experts_that_no_token_visits_are_not_read() -> None:
    """A step of one token reads the experts it chose, not all that lie on the host."""
    settings = {"cpu_offload_gb": 30.0}
    few, many = (
        gnomon.predict("qwen3-30b-a3b", on="H200", phase="decode", batch=batch, context=64, settings=settings)
        for batch in (1, 256)
    )
    assert few.time_s.value < 0.2 * many.time_s.value
    assert many.time_s.value > 28 * GIB / 63e9


REFUSED = [
    ("deepseek-v2-lite", {"cpu_offload_gb": 4}, "softmax attention"),
    ("qwen2.5-7b", {"cpu_offload_gb": 4, "speculative_method": "ngram", "num_speculative_tokens": 3}, "drafts"),
    ("qwen2.5-7b", {"offload_group_size": 4, "enable_lora": True}, "adapters"),
    ("qwen2.5-7b", {"offload_group_size": 4, "offload_num_in_group": 5}, "more than offload_group_size"),
    ("qwen2.5-7b", {"offload_backend": "prefetch"}, "more than offload_group_size 0"),
]


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED)
def test_what_is_not_run_or_priced_is_refused(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        gnomon.fit(name, on="H200", settings=settings)


def test_a_chip_that_shares_its_memory_has_no_host() -> None:
    with pytest.raises(InputError, match="shares one memory with its host"):
        gnomon.fit("qwen2.5-7b", on="GB10", settings={"cpu_offload_gb": 4})


def test_a_70b_on_one_80_gb_card() -> None:
    settings = {"max_model_len": 8192}
    assert not gnomon.fit("llama-3.1-70b", on="H100", settings=settings).fits
    found = gnomon.fit("llama-3.1-70b", on="H100", settings={**settings, "cpu_offload_gb": 75})
    assert found.fits
    load = {"rate": 0.02, "input": 300, "output": 10, "requests": 20}
    run = gnomon.simulate_serving(
        "llama-3.1-70b", on="H100", settings={"cpu_offload_gb": 75, "max_model_len": 4096}, **load
    )
    step = gnomon.predict(
        "llama-3.1-70b", on="H100", phase="decode", batch=1, context=300, settings={"cpu_offload_gb": 75}
    )
    assert run.tpot_s["p50"] == pytest.approx(step.time_s.value, rel=0.05)


def planned(name: str, settings: dict[str, Any], dtype: str = "bf16") -> Plan:
    choice = EngineChoice(name="vllm", settings=settings)
    return Plan(model=name, chip="H100", dtype=dtype, engine=choice, strategy=Strategy(), replicas=1)


def test_commands_say_what_the_offloader_needs() -> None:
    """The first model runner, where vLLM would take the second; and weights that are there when they are moved."""
    variable = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert launch.environment(planned("llama-3.1-8b", {"cpu_offload_gb": 4})) == variable
    assert launch.environment(planned("llama-3.1-8b", {"offload_group_size": 4})) == variable
    assert launch.environment(planned("llama-3.1-8b", {})) == {}
    assert launch.environment(planned("qwen2.5-7b", {"cpu_offload_gb": 4})) == {}
    (server,) = launch.servers(planned("llama-3.1-8b", {"cpu_offload_gb": 4}))
    assert server.shell.startswith("VLLM_USE_V2_MODEL_RUNNER=0 CUDA_VISIBLE_DEVICES=0 vllm serve")
    narrow = planned("qwen2.5-7b", {"cpu_offload_gb": 4}, "fp8")
    assert launch.command(narrow)[2] == launch.CHECKPOINT
    assert "--quantization" not in launch.command(narrow)
    assert any("quantizes to fp8" in one for one in launch.not_expressed(narrow))
    assert "--quantization" in launch.command(planned("qwen2.5-7b", {}, "fp8"))


SERVE = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192"


def test_flags_are_read_back() -> None:
    found = gnomon.import_plan(f"{SERVE} --cpu-offload-gb 4", on="H100").plan
    assert found.engine.settings["cpu_offload_gb"] == 4
    flags = "--offload-backend prefetch --offload-group-size 4 --offload-num-in-group 2 --offload-prefetch-step 3"
    settings = gnomon.import_plan(f"{SERVE} {flags}", on="H100").plan.engine.settings
    assert [settings[f"offload_{name}"] for name in ("group_size", "num_in_group", "prefetch_step")] == [4, 2, 3]
    assert settings["offload_backend"] == "prefetch"


def test_the_second_runner_of_vllm_0_24_offloads_nothing() -> None:
    """It takes the flag and loads all weights; the variable that selects the first runner makes it act."""
    serve = "vllm serve meta-llama/Llama-3.1-8B-Instruct --cpu-offload-gb 4"
    found = gnomon.import_plan(serve, on="H100")
    assert "cpu_offload_gb" not in found.plan.engine.settings
    assert any(one.option.startswith("--cpu-offload-gb") and not one.affects for one in found.ignored)
    first = gnomon.import_plan(f"VLLM_USE_V2_MODEL_RUNNER=0 {serve}", on="H100")
    assert first.plan.engine.settings["cpu_offload_gb"] == 4
    assert not first.ignored


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("qwen2.5-7b", "low-rank-weights"),
        ("qwen2.5-7b", "nano-batches"),
        ("qwen1.5-moe-a2.7b", "expert-offload"),
        ("qwen2.5-7b", "nano-batches:first=0.5"),
    ],
)
def test_techniques_that_change_what_reads_the_weights_are_refused(model: str, text: str) -> None:
    with pytest.raises(InputError, match="changes the operators that read the weights"):
        gnomon.predict(model, **STEP, settings={"cpu_offload_gb": 2}, techniques=[text])


def test_techniques_that_leave_the_weights_alone_are_priced_beside_them() -> None:
    for settings, text in (
        ({"cpu_offload_gb": 2}, "grouped-adapters"),
        ({"offload_group_size": 4}, "nano-batches"),
    ):
        plain, both = (
            gnomon.predict("qwen2.5-7b", **STEP, settings=settings, techniques=texts) for texts in ([], [text])
        )
        assert both.time_s.value > plain.time_s.value
