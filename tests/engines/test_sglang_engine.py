"""SGLang behind the contract: options, memory, captured sizes, degrees and launch commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import gnomon
from gnomon.engines import Deployment
from gnomon.engines.sglang import graphs, launch, operations
from gnomon.engines.sglang.engine import Sglang, scheduling
from gnomon.engines.sglang.memory import memory, pool, static_share
from gnomon.engines.sglang.options import BY_NAME, OPTIONS, REFUSED, fill
from gnomon.errors import DoesNotFitError, InputError, UnknownNameError
from gnomon.load import model as load_model
from gnomon.load.deployments import deploy
from gnomon.load.fleet import parse_pool
from gnomon.spec import EngineChoice, Plan, Strategy

GIB = 1024**3


def deployed(model: str, on: str, *, dtype: str | None = None, **given: Any) -> Deployment:
    degrees = {name: given.pop(name) for name in ("tp", "pp", "dp", "ep") if name in given}
    _, found = deploy(
        load_model(model), parse_pool(on), strategy=Strategy(**degrees), dtype=dtype, engine="sglang", settings=given
    )
    return found


@pytest.mark.parametrize(
    ("chip", "chunk", "page", "captured", "many"),
    [("T4", 2048, 1, 8, 8), ("RTX-4090", 4096, 1, 48, 160), ("L40S", 4096, 1, 32, 160), ("H100", 8192, 1, 256, 512),
     ("H200", 8192, 1, 256, 512), ("B200", 16384, 64, 512, 512)],
)  # fmt: skip
def test_defaults_by_the_memory_of_the_chip(chip: str, chunk: int, page: int, captured: int, many: int) -> None:
    """`handle_gpu_memory_settings` and `_mla_backend_page_constraints` of 0.5.23."""
    there = parse_pool(chip)
    settings = fill({}, load_model("llama-3.1-8b"), there)
    assert (settings["chunked_prefill_size"], settings["page_size"]) == (chunk, page)
    assert graphs.largest_decode(settings, there.chip, Strategy()) == captured
    assert graphs.largest_decode(settings, there.chip, Strategy(tp=4)) == many


def test_captured_sizes() -> None:
    found = deployed("llama-3.1-8b", "H100")
    sizes = graphs.decode_sizes(found.settings, found.pool.chip, found.strategy)
    assert sizes[:8] == (1, 2, 4, 8, 12, 16, 24, 32)
    assert sizes[-1] == 256
    prompts = graphs.prompt_sizes(found.settings, found.model, found.strategy)
    assert (prompts[0], prompts[-1], len(prompts)) == (4, 8192, 58)
    assert graphs.prompt_sizes(found.settings, found.model, Strategy(pp=2)) == ()
    eager = deployed("llama-3.1-8b", "H100", disable_cuda_graph=True)
    assert Sglang().host(eager).captured == ()
    few = deployed("llama-3.1-8b", "H100", max_running_requests=40)
    assert graphs.decode_sizes(few.settings, few.pool.chip, few.strategy)[-1] == 40


def test_a_decode_beyond_the_captured_sizes_is_launched_kernel_by_kernel() -> None:
    host = Sglang().host(deployed("llama-3.1-8b", "H100"))
    assert host.largest == 8192
    assert host.decode(256) < host.decode(257) == pytest.approx(host.eager_launch_s)


def test_static_share_by_hand() -> None:
    # 512 + 1.5 * 8192 + 128 + 2 * 256 + 8 * 58 MiB of an H100's 81,559.
    found = deployed("llama-3.1-8b", "H100")
    assert static_share(found) == round((81559 - 13904) / 81559, 3) == 0.83
    assert static_share(deployed("llama-3.1-8b", "H100", mem_fraction_static=0.9)) == 0.9
    # Latent attention reserves 1.5 GiB for its graphs; four ranks capture 512 sequences.
    latent = deployed("deepseek-v2-lite", "H100:4", tp=4)
    assert static_share(latent) == round((81559 - (512 + 12288 + 512 + 1024 + 1536)) / 81559, 3)


def test_the_pool_of_a_published_start() -> None:
    """Qwen3-235B-A22B in fp8 on four H100 with 93% static: 367,404 tokens (issue 21348 of vllm-project/vllm)."""
    found = deployed("qwen3-235b-a22b", "H100:4", dtype="fp8", tp=4, mem_fraction_static=0.93)
    use = memory(found)
    assert use.kv_blocks * use.block_tokens * use.kv_bytes_per_token == pytest.approx(16.46 * GIB, abs=2.2 * GIB)


def test_request_slots() -> None:
    # 512 for each longest sequence that the pool holds, from 2,048 to 4,096.
    assert pool(deployed("llama-3.1-8b", "H100")).requests == 2048
    assert pool(deployed("llama-3.1-8b", "H100", context_length=8192)).requests == 4096
    assert pool(deployed("llama-3.1-8b", "H100", max_running_requests=100)).requests == 100
    assert pool(deployed("llama-3.1-8b", "H100", max_total_tokens=1000)).requests == 500


def test_limits() -> None:
    engine, found = Sglang(), deployed("llama-3.1-8b", "H100", enable_mixed_chunk=True, schedule_policy="lpm")
    limits = engine.limits(found)
    assert (limits.block_tokens, limits.lookahead, limits.empty_call_s) == (1, 1, 0.0)
    assert limits.max_context == 131072
    assert engine.limits(deployed("llama-3.1-8b", "H100", max_total_tokens=5000)).max_context == 4998
    assert engine.limits(deployed("llama-3.1-8b", "H100", disable_overlap_schedule=True)).lookahead == 0
    with pytest.raises(DoesNotFitError, match="no room for a KV pool"):
        engine.limits(deployed("llama-3.1-70b", "H100"))


def test_windows_keep_a_share_of_the_tokens() -> None:
    found = deployed("gpt-oss-20b", "H100")
    full = found.model.kv_bytes_per_token(2.0, 1)
    assert memory(found).kv_bytes_per_token == pytest.approx(0.9 * full)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_says_what_it_is(option: Any) -> None:
    assert option.what
    assert option.unmodelled or option.idle
    assert option.flag.startswith("--")
    assert option.default is None or option.kind is bool or fill({option.name: option.default}, *PLAIN)


PLAIN = load_model("llama-3.1-8b"), parse_pool("H100")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"mem_fraction_statc": 0.8}, "mem_fraction_static"),
        ({"mem_fraction_static": 1.0}, "share between"),
        ({"schedule_policy": "random"}, "fcfs, lpm, lof"),
        ({"tp_size": 2}, "not a setting"),
        ({"chunked_prefill_size": 0}, "between"),
        ({"chunked_prefill_size": -1, "enable_mixed_chunk": True}, "not cut"),
        ({"page_size": 16, "chunked_prefill_size": 100}, "multiple"),
        ({"context_length": 10**6}, "supports"),
        ({"disable_radix_cache": "perhaps"}, "true or false"),
        *(({name: "x"}, "not modelled") for name in REFUSED),
    ],
)
def test_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises((InputError, UnknownNameError)) as caught:
        fill(given, *PLAIN)
    assert why in f"{caught.value} {caught.value.hint}"


def test_what_no_figure_depends_on_is_listed() -> None:
    found = gnomon.predict("llama-3.1-8b", on="H100", engine="sglang", settings={"attention_backend": "triton"})
    assert [each.option for each in found.not_modelled] == ["attention_backend=triton"]


@pytest.mark.parametrize(
    ("model", "degrees", "why"),
    [
        ("llama-3.1-8b", {"dp": 2}, "servers of their own"),
        ("llama-3.1-8b", {"ep": 2, "tp": 2}, "no experts"),
        ("qwen3-30b-a3b", {"tp": 4, "ep": 2}, "not priced"),
    ],
)
def test_degrees_that_are_refused(model: str, degrees: dict[str, int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        deployed(model, "H100:8", **degrees)


def test_states_are_refused() -> None:
    with pytest.raises(InputError, match="pool of their own"):
        deployed("mamba-2.8b", "H100")


def test_ranks_of_data_parallel_attention_share_chunk_and_requests() -> None:
    engine, settings = Sglang(), {"max_running_requests": 64, "chunked_prefill_size": 8192}
    found = deployed("qwen3-30b-a3b", "H100:4", dp=4, ep=4, **settings)
    limits = engine.limits(found)
    assert (limits.ranks, limits.max_sequences, limits.max_step_tokens) == (4, 16, 2048)
    reads = scheduling(found.settings, dp=4)
    assert (reads.chunk_tokens, reads.conservativeness) == (2048, pytest.approx(0.3))
    assert engine.step_cost(found).ranks == 4


def plan(**changes: Any) -> Plan:
    base = Plan(
        model="llama-3.1-8b", chip="H100-SXM-80GB", strategy=Strategy(), dtype="bf16", replicas=1,
        engine=EngineChoice(name="sglang", version="0.5.23", settings={}),
    )  # fmt: skip
    return replace(base, **changes)


def test_the_command_of_a_replica() -> None:
    settings = {"chunked_prefill_size": 4096, "disable_radix_cache": True, "schedule_policy": "fcfs"}
    one = plan(strategy=Strategy(tp=2), kv_dtype="fp8", engine=EngineChoice(name="sglang", settings=settings))
    assert " ".join(launch.command(one)) == (
        "python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B-Instruct --tp-size 2 --dtype bfloat16 "
        "--kv-cache-dtype fp8_e4m3 --chunked-prefill-size 4096 --disable-radix-cache"
    )
    experts = plan(model="qwen3-30b-a3b", strategy=Strategy(dp=4, ep=4))
    words = " ".join(launch.command(experts))
    assert "--tp-size 4 --dp-size 4 --enable-dp-attention --ep-size 4" in words


def test_script_container_and_what_is_not_expressed() -> None:
    two = plan(replicas=2)
    text = operations.script(two)
    assert "SGLang 0.5.23" in text
    assert "CUDA_VISIBLE_DEVICES=1 python -m sglang.launch_server" in text
    assert operations.container(two).image == "lmsysorg/sglang:v0.5.23"
    assert not any("vLLM" in each for each in operations.not_expressed(two))
    nodes = plan(model="llama-3.1-405b", strategy=Strategy(tp=16))
    assert "--nnodes 2" in operations.script(nodes)
    with pytest.raises(InputError, match="does not run SGLang itself"):
        operations.check_measured(two)


def test_names() -> None:
    assert set(BY_NAME).isdisjoint(REFUSED)
    with pytest.raises(UnknownNameError):
        Sglang("0.4")
    assert Sglang("0.5").version == "0.5.23"


OTHERS: dict[str, Any] = {
    "context_length": 4096, "max_running_requests": 4, "chunked_prefill_size": 512, "max_prefill_tokens": 256,
    "prefill_max_requests": 1, "mem_fraction_static": 0.5, "max_total_tokens": 4000, "page_size": 16,
    "schedule_policy": "lof", "schedule_conservativeness": 0.3, "disable_radix_cache": True,
    "enable_mixed_chunk": True, "disable_overlap_schedule": True, "disable_cuda_graph": True,
    "disable_prefill_cuda_graph": True, "cuda_graph_max_bs": 2, "attention_backend": "triton",
    "moe_runner_backend": "triton", "enable_torch_compile": True, "stream_interval": 4,
}  # fmt: skip
LOAD: dict[str, Any] = {"rate": 12.0, "input": 700, "output": 120, "requests": 120, "on": "H100", "engine": "sglang"}


@pytest.mark.heavy
@pytest.mark.battery(6)
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_setting_acts_or_is_listed(option: Any) -> None:
    """On the figures of a load, or on what its scheduler works within, where this load never meets that."""
    given = {option.name: OTHERS[option.name]}
    plain = gnomon.simulate_serving("llama-3.1-8b", **LOAD)
    found = gnomon.simulate_serving("llama-3.1-8b", settings=given, **LOAD)
    listed = [each.option for each in found.not_modelled if each.option.startswith(option.name)]
    same = (found.ttft_s, found.tpot_s, found.peak_kv_blocks) == (plain.ttft_s, plain.tpot_s, plain.peak_kv_blocks)
    assert bool(listed) == (same and within(**given) == within())


def within(**given: Any) -> tuple[Any, ...]:
    limits = Sglang().limits(deployed("llama-3.1-8b", "H100", **given))
    scheduling: Any = getattr(limits.policy, "__self__", None)  # of prompts that share nothing, as those of this load
    return limits.kv_blocks, limits.max_sequences, limits.max_context, scheduling.unshared


def test_experts_in_16_bits_run_with_triton_on_blackwell() -> None:
    """FlashInfer's experts are taken where they are named, and priced by a table of their own."""
    asked: dict[str, Any] = {"on": "B200:8", "tp": 8, "phase": "decode", "batch": 4, "context": 1000}
    asked["engine"] = "sglang"

    def seconds(model: str, **settings: str) -> float:
        return float(gnomon.predict(model, settings=settings, **asked).time_s.value)

    plain, triton, own = (seconds("qwen3-235b-a22b", moe_runner_backend=name)
                          for name in ("auto", "triton", "flashinfer_trtllm"))  # fmt: skip
    assert plain == triton != own
    blocks = [seconds("deepseek-r1", moe_runner_backend=name) for name in ("auto", "flashinfer_trtllm", "triton")]
    assert blocks[0] == blocks[1] != blocks[2]
    with pytest.raises(InputError, match="no experts"):
        gnomon.predict("llama-3.1-8b", on="B200", phase="decode", batch=1, engine="sglang",
                       settings={"moe_runner_backend": "triton"})  # fmt: skip
