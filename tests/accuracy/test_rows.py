"""Published rows become Gnomon's words, or say why they do not."""

from __future__ import annotations

from typing import Any

import pytest

from gnomon.accuracy import deployment_rows, run_rows, runs
from gnomon.accuracy.deployment_rows import ASSUMED_INPUT, RECENT, Unfit, any_case_of, case_of
from gnomon.accuracy.run_rows import kept_out, run_case_of

SERVED = dict.fromkeys(deployment_rows.NEEDED, "") | {
    "row_id": "inferencex-1", "source": "inferencex", "model": "meta-llama/Llama-3.1-70B", "weight_precision": "fp8",
    "gpu": "H100-SXM-80GB", "n_gpus": "4", "tp": "4", "ep": "1", "dp": "1", "mode": "agg", "engine_family": "vLLM",
    "isl": "1024.0", "osl": "1024.0", "concurrency": "64.0", "batch": "64.0", "ttft_ms": "250", "tpot_ms": "19.5",
    "tier": "A",
}  # fmt: skip
TRAINED = dict.fromkeys(run_rows.NEEDED, "") | {
    "id": "T1", "source": "MosaicML", "confidence": "read", "framework": "Composer FSDP", "model": "MPT 7b",
    "arch": "gpt", "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "32", "ffn": "16384", "vocab": "50368",
    "seq_len": "2048", "gpu": "A100-SXM 80GB", "n_gpus": "8", "tp": "1", "pp": "1", "zero_stage": "3",
    "micro_batch": "8", "global_batch": "1024", "precision": "bf16 PURE", "recompute": "full",
    "step_time_derived_s": "60.5", "good_for": "timing", "fields_not_read": "link names",
}  # fmt: skip


def test_a_serving_row() -> None:
    case = case_of(SERVED)
    assert (case.model, case.group, case.clients, case.least) == ("llama-3.1-70b", RECENT, 64, 0.8)
    assert case.options["on"] == "H100-SXM-80GB:4"
    assert (case.options["dtype"], case.options["kv_dtype"], case.options["tp"]) == ("fp8", None, 4)
    asked = {"max_model_len": 2304, "max_num_seqs": 64, "max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.9}
    assert case.options["settings"] == asked
    assert case.measured == {"TPOT": 0.0195, "TTFT": 0.25}


OLDER = {"source": "splitwise", "engine_family": "vLLM", "model": "llama-2-70b", "weight_precision": "fp16"}


def test_a_row_of_earlier_years_is_predicted_under_the_version_it_had() -> None:
    """Unless that version is fitted to it."""
    assert case_of(SERVED | {"model": "meta-llama/Llama-3.1-70B"}).engine == "vllm"
    on_h100 = SERVED | OLDER | {"tier": "A"}
    assert case_of(on_h100).engine == "vllm@0.2"
    with pytest.raises(Unfit, match="fitted to these"):
        case_of(on_h100 | {"gpu": "A100-SXM-80GB"})
    assert any_case_of(on_h100 | {"gpu": "A100-SXM-80GB"}).engine == "vllm@0.2"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"engine_family": "TensorRT-LLM"}, "no engine for TensorRT-LLM"),
        ({"mode": "disagg"}, "disaggregated"),
        ({"dp": "4"}, "data-parallel"),
        ({"tp": "2"}, "plan unclear"),
        ({"tier": "B", "quality": "flagged; more"}, "tier B.: flagged$"),
        ({"model": "nobody/nothing"}, "not in the catalog"),
        ({"weight_precision": "UINT4"}, "format 'UINT4'"),
        ({"concurrency": ""}, "no concurrency"),
        ({"ttft_ms": "", "tpot_ms": ""}, "no figure"),
        ({"isl": "200000"}, "longer than the maximum context"),
        ({"isl": "inf"}, "no isl"),
        ({"tpot_ms": "0"}, "tpot_ms is 0"),
        ({"ttft_ms": "-3"}, "no ttft_ms"),
        ({"source": "splitwise", "plan_detail": "power-capped"}, "power limit"),
        ({"plan_detail": "mtp=3"}, "unknown plan detail: mtp=3"),
        ({"pp": "2"}, "pipeline"),
        ({"kv_precision": "nvfp4"}, "cache in 'nvfp4'"),
        ({"weight_precision": "mxfp4"}, "format 'mxfp4' of a network"),
        ({"weight_precision": "nvfp4/mxfp4", "gpu": "MI355X"}, "format 'nvfp4/mxfp4' of a network"),
    ],
)
def test_serving_rows_that_do_not_fit(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Unfit, match=why):
        case_of(SERVED | changes)


def test_names_that_say_nothing_of_shapes() -> None:
    changes = {
        "source": "ml_energy",
        "workload": "real prompts: gpqa",
        "tier": "B",
        "isl": "",
        "weight_precision": "bfloat16",
    }
    case = case_of(SERVED | changes | {"model": "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "batch": "31.6"})
    assert (case.model, case.clients, case.input_tokens) == ("qwen3-30b-a3b", 32, ASSUMED_INPUT)
    assert list(case.measured) == ["TPOT"]


BIGSCIENCE = {
    "framework": "Megatron-DeepSpeed ZeRO", "model": "GPT-2 39B", "layers": "", "hidden": "", "heads": "", "ffn": "",
    "kv_heads": "", "vocab": "", "gpu": "V100-SXM2 32GB", "n_gpus": "64", "tp": "4", "pp": "2", "dp": "8",
    "precision": "fp16", "zero_stage": "1", "step_time_derived_s": "", "tflops_per_gpu": "40",
    "tflops_kind": "hardware (Megatron formula)",
}  # fmt: skip


def test_a_row_of_trial_runs_is_completed_from_its_source() -> None:
    """A network by its size, and seconds from the rate that its formula counts: 8 L h^2 tokens (12 h + ...)."""
    case = run_case_of(TRAINED | BIGSCIENCE)
    assert case.options["engine"] == "deepspeed@0.3"
    assert isinstance(case.network, dict) and case.network["hidden"] == 8192
    parameters = 12 * 48 * 8192**2
    passes = 8 * parameters * 1024 * 2048 / (40e12 * 64)
    assert passes < case.figures.seconds["step time"] < 1.15 * passes


def test_a_degree_that_the_source_leaves_out_is_what_the_chips_leave() -> None:
    case = run_case_of(TRAINED | {"n_gpus": "16", "tp": "", "pp": "8", "dp": "1"})
    assert case.options["tp"] == 2
    assert "tp" in case.assumed


@pytest.mark.parametrize(
    ("changes", "flops"),
    [
        ({"tflops_kind": "model"}, 72 * (1 + 2048 / (6 * 4096) + 50368 / (12 * 32 * 4096))),
        ({"tflops_kind": "hardware", "recompute": "full"}, 96 * (1 + 2048 / (6 * 4096) + 50368 / (16 * 32 * 4096))),
        (
            {"tflops_kind": "model", "source": "Megatron-Bridge notes"},
            72 * (1 + 2048 / (12 * 4096) + 50368 / (12 * 32 * 4096)),
        ),
    ],
)  # fmt: skip
def test_seconds_from_a_rate(changes: dict[str, str], flops: float) -> None:
    """By the formulas of Narayanan et al. 2021; Megatron-Bridge counts scores under the mask."""
    case = run_case_of(TRAINED | {"step_time_derived_s": "", "tflops_per_gpu": "100"} | changes)
    whole = flops * 1024 * 2048 * 32 * 4096**2
    assert case.figures.seconds["step time"] == pytest.approx(whole / (100e12 * 8))


def test_seconds_from_tokens_and_from_utilisation() -> None:
    row = TRAINED | {"step_time_derived_s": ""}
    tokens = run_case_of(row | {"tokens_s_gpu": "4000"}).figures.seconds["step time"]
    assert tokens == pytest.approx(1024 * 2048 / 8 / 4000)
    whole, half = (run_case_of(row | {"mfu_pct": share}).figures.seconds["step time"] for share in ("100", "50"))
    assert half == pytest.approx(2 * whole)
    rate = run_case_of(row | {"tflops_per_gpu": "312", "tflops_kind": "model"}).figures.seconds["step time"]
    assert whole == pytest.approx(rate)


@pytest.mark.parametrize(
    ("kind", "what", "unit"),
    [
        ("peak GB", "peak memory", 1e9),
        ("rank-0 peak allocated GiB", "peak memory", 1024**3),
        ("GB per GPU", "device memory", 1e9),
        ("theoretical/profile GiB: params + activations", "states and activations", 1024**3),
    ],
)
def test_readings_of_memory(kind: str, what: str, unit: float) -> None:
    figures = run_case_of(TRAINED | {"mem_gb": "40", "mem_kind": kind, "step_time_derived_s": ""}).figures
    assert (figures.seconds, figures.memory) == ({}, {what: 40 * unit})


def test_a_training_row() -> None:
    case = run_case_of(TRAINED)
    assert case.assumed == ()
    assert case.figures.seconds == {"step time": 60.5}
    expected = {"on": "A100-SXM-80GB:8", "dtype": "bf16", "engine": "torch@2.0", "zero": 3}
    assert expected.items() <= case.options.items()
    assert isinstance(case.network, dict)
    assert case.network["blocks"][0]["mixer"]["head_dim"] == 128


@pytest.mark.parametrize(
    ("changes", "assumed"),
    [
        ({"fields_not_read": "dims; zero_stage; links"}, ("dims", "zero_stage")),
        ({"fields_not_read": "dims; links", "model": "Llama 3 8B", "arch": "llama"}, ()),
        ({"recompute": ""}, ("recompute",)),
        ({"gpu": "B200 (power limited)"}, ("power limit",)),
        ({"fields_not_read": "seq_len where not in table (default 8192)"}, ("seq_len",)),
        ({"recompute": "selective (op)", "framework": "TorchTitan"}, ()),
        ({"features": "torch.compile; vanilla TP; local batch 8; tuned"}, ("tuned",)),
        ({"features": "SFT packed SQuAD"}, ("SFT packed SQuAD",)),
        ({"features": "w/o MTP"}, ()),
        ({"schedule": "1F1B-interleaved", "vp": "2"}, ()),
    ],
)
def test_what_a_training_row_leaves_out(changes: dict[str, str], assumed: tuple[str, ...]) -> None:
    assert run_case_of(TRAINED | changes).assumed == assumed


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"framework": "Abacus"}, "no engine for Abacus"),
        ({"gpu": "Abacus 9"}, "card not in the catalog"),
        ({"step_time_derived_s": ""}, "neither a step time"),
        ({"arch": "dit"}, "not plain"),
        ({"hidden": ""}, "no hidden"),
        ({"hidden": "inf"}, "no hidden"),
        ({"step_time_s": "soon"}, "no step_time_s"),
        ({"step_time_s": "0"}, "step_time_s is 0"),
        ({"precision": "MXFP4"}, "training in MXFP4 is not simulated"),
        ({"precision": "int8"}, "training in int8 is not simulated"),
    ],
)
def test_training_rows_that_do_not_fit(changes: dict[str, str], why: str) -> None:
    with pytest.raises(Unfit, match=why):
        run_case_of(TRAINED | changes)


def test_adapters_of_a_tray_are_not_those_of_a_rack() -> None:
    """Sources count four chips of an NVL72 rack as a node: every chip has the adapter that its tray gives it."""
    row = TRAINED | {"gpu": "GB200", "n_gpus": "128", "inter_link": "4x 400 Gb/s per node", "gpus_per_node": "4"}
    node = runs._pool(run_case_of(row)).node
    assert node is not None
    assert (node.chips, node.adapters, node.adapter.bandwidth_bytes_s) == (72, 72, 50e9)
    half = TRAINED | {"n_gpus": "16", "inter_link": "4x HDR IB 200 Gb/s", "gpus_per_node": "8"}
    for changes in ({}, {"gpus_per_node": ""}):
        node = runs._pool(run_case_of(half | changes)).node
        assert node is not None
        assert (node.chips, node.adapters) == (8, 4)


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({"source": "somebody"}, runs.READ),
        ({"source": "somebody", "recompute": ""}, runs.ASSUMED),
        ({"source": "somebody", "confidence": "recalled"}, runs.RECALLED),
        ({"source": "vTrain measured single-node sample", "framework": "Megatron-DeepSpeed"}, runs.FITTED),
        ({"source": "BigScience GPT-2 ZeRO (V100)"}, runs.UNSTEADY),
        ({"source": "MosaicML", "id": "T0558"}, runs.FITTED),
        ({"source": "MosaicML", "id": "T0557"}, runs.READ),
    ],
)  # fmt: skip
def test_rows_that_something_was_fitted_to_are_scored_apart(changes: dict[str, str], group: str) -> None:
    """Of MosaicML's every second one."""
    case = run_case_of(TRAINED | changes)
    assert runs._group(case) == group
    row = {"id": "T1", "group": group, "what": "step time", "error": 0.5, "inside": None}
    held = [one for one in runs.whole_of([row]) if one["of"] == runs.HELD_OUT]
    assert bool(held) == (group != runs.FITTED)


def test_one_figure_of_each_run_counts_for_the_whole() -> None:
    rows = [
        {"id": name, "group": runs.READ, "what": what, "error": error, "inside": None}
        for name, what, error in (("T1", "step time", 0.1), ("T1", "peak memory", 0.9), ("T2", "peak memory", 0.3))
    ]
    first = runs.whole_of(rows)[0]
    assert (first["rows"], first["mean_error"]) == (2, pytest.approx(0.2))


@pytest.mark.parametrize(
    ("changes", "network"),
    [
        ({"model": "Wan 2.1 14B DiT", "arch": "dit", "seq_len": "37440"}, "wan-2.1-t2v-14b"),
        ({"model": "Moonlight 16B-A3B", "arch": "mla-moe", "moe": "64 experts"}, "deepseek_v3"),
        ({"model": "Nemotron 3 Nano 30B-A3B", "arch": "hybrid-mamba-moe"}, "nemotron_h"),
    ],
)
def test_networks_that_are_no_plain_decoders(changes: dict[str, str], network: str) -> None:
    found = run_case_of(TRAINED | changes).network
    assert (found if isinstance(found, str) else found["model_type"]) == network


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("bf16", "bf16"), ("BF16", "bf16"), ("amp_bf16 DEFAULT", "bf16"), ("fp16", "fp16"), ("FP8-CS", "fp8-current"),
     ("fp8 tensorwise linear", "fp8"), ("fp8 current scaling", "fp8-current"), ("FP8-MX", "mxfp8"),
     ("mxfp8 cublas", "mxfp8"), ("fp8 rowwise", "fp8-rows"), ("NVFP4", "nvfp4")],
)  # fmt: skip
def test_formats_that_are_what_they_are_called(precision: str, dtype: str) -> None:
    assert run_case_of(TRAINED | {"precision": precision}).options["dtype"] == dtype


@pytest.mark.parametrize("gathered", [True, False])
def test_gathered_weights_are_a_setting(gathered: bool) -> None:
    found = run_case_of(TRAINED | {"precision": f"fp8 tensorwise{' + fp8 all-gather' * gathered}"}).options
    assert (found["dtype"], found["fp8_param_gather"]) == ("fp8", gathered)


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"weight_precision": "nvfp4/mxfp4", "gpu": "B200-SXM-180GB"}, "nvfp4"),
        ({"weight_precision": "nvfp4/mxfp4", "model": "openai/gpt-oss-120b"}, None),
        ({"weight_precision": "fp16"}, "fp16"),
    ],
)
def test_formats_of_serving_rows(changes: dict[str, str], dtype: str | None) -> None:
    assert case_of(SERVED | changes).options["dtype"] == dtype


SUMMARY = "Megatron-Bridge performance summary"
BRIDGED_MOE = {"model": "Qwen3 30B-A3B", "arch": "moe", "moe": "128 experts", "ep": "2"}
BRIDGED = {"framework": "Megatron-Bridge", "arch": "llama", "tp": "2", "zero_stage": "1", "recompute": "none"}


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"framework": "TorchTitan", "tp": "2", "features": "torch.compile; AsyncTP"}, {"tp_overlap": True}),
        ({"framework": "TorchTitan", "tp": "2", "features": "torch.compile; vanilla TP"}, {"tp_overlap": None}),
        ({"framework": "Megatron-LM", "tp": "2", "features": "a, tp-comm-overlap"}, {"tp_overlap": None}),
        (BRIDGED, {"tp_overlap": True}),
        (BRIDGED | {"tp": "1"}, {"tp_overlap": None}),
        (BRIDGED | {"features": "LoRA packed"}, {"techniques": ("lora:rank=32",)}),
        (BRIDGED | {"model": "Llama 3 8B LoRA"}, {"techniques": ("lora:rank=32",)}),
        (BRIDGED | {"model": "Qwen3 30B-A3B", "arch": "moe", "moe": "128 experts", "features": "tokendrop"},
         {"expert_tp": 1, "mtp_layers": None, "capacity_factor": 1.0, "pad_to_capacity": True}),
        (BRIDGED | {"model": "Qwen3 30B-A3B", "arch": "moe", "moe": "128 experts", "features": "EP overlap on"},
         {"ep_overlap": True, "capacity_factor": None}),
        (BRIDGED | {"model": "Qwen3 30B-A3B", "arch": "moe", "moe": "128 experts", "features": "EP overlap off"},
         {"ep_overlap": None}),
        (BRIDGED | BRIDGED_MOE | {"features": "HybridEP, grouped GEMM, CUDA graphs"}, {"cuda_graphs": True}),
        (BRIDGED | BRIDGED_MOE | {"features": "tokendrop", "source": f"{SUMMARY} 25.09", "gpu": "B200"},
         {"cuda_graphs": True, "pad_to_capacity": True}),
        (BRIDGED | BRIDGED_MOE | {"features": "tokendrop", "source": f"{SUMMARY} 25.09", "gpu": "H100"},
         {"cuda_graphs": None}),
        (BRIDGED | {"source": f"{SUMMARY} 25.09", "precision": "FP8"}, {"dtype": "fp8-current"}),
        (BRIDGED | {"source": f"{SUMMARY} 25.11", "precision": "FP8"}, {"dtype": "fp8"}),
        (BRIDGED | {"model": "DeepSeek V3", "arch": "mla-moe", "moe": "256 experts", "features": "w/ MTP"},
         {"mtp_layers": 1}),
        (BRIDGED | {"model": "DeepSeek V3", "arch": "mla-moe", "moe": "256 experts", "features": "w/o MTP"},
         {"mtp_layers": None}),
        ({"zero_stage": "3 + CPU offload", "framework": "DeepSpeed ZeRO-3 Offload"},
         {"zero": 3, "techniques": ("offload-optimizer",)}),
        ({"zero_stage": "3 + CPU offload params+optimizer", "framework": "DeepSpeed ZeRO-3 Offload"},
         {"techniques": ("offload-optimizer", "offload-parameters")}),
        ({"framework": "TorchTitan", "source": "TorchTitan H200"}, {"engine": "torchtitan@2025"}),
        ({"framework": "TorchTitan", "model": "Llama 4 Scout", "moe": "16 experts"}, {"engine": "megatron@bridge"}),
        ({"source": "DeepSpeed on Azure", "framework": "DeepSpeed ZeRO-3", "model": "GPT 1T", "zero_stage": "3"},
         {"techniques": ("offload-activations", "offload-optimizer")}),
    ],
)  # fmt: skip
def test_features_are_options_of_the_plan(changes: dict[str, str], options: dict[str, Any]) -> None:
    """Megatron-LM of A100s had no collectives in pieces, having no sequence parallelism."""
    found = run_case_of(TRAINED | changes).options
    assert {name: found.get(name) for name in options} == options


def test_half_of_the_mixtures_of_megatron_bridge_is_kept_out_of_a_fit() -> None:
    mixture = TRAINED | BRIDGED | BRIDGED_MOE | {"source": f"{SUMMARY} 25.11"}
    for row_id in ("T0513", "T0514", "T0536", "T0506"):
        case = run_case_of(mixture | {"id": row_id})
        assert bool(case.fitted) is not kept_out(row_id)
        assert not run_case_of(TRAINED | BRIDGED | {"source": f"{SUMMARY} 25.11", "id": row_id}).fitted
    assert kept_out("T0514") and not kept_out("T0513")


@pytest.mark.parametrize(
    ("changes", "recompute"),
    [
        ({"recompute": "full (remat)"}, "full"),
        ({"recompute": "selective (op)"}, "op"),
        ({"recompute": "selective (layer)"}, "every=2"),
        ({"recompute": "selective (mlp+core_attn)"}, "modules=mlp+core_attn"),
        ({"recompute": "selective (core_attn+layernorm)"}, "modules=core_attn"),
        ({"recompute": "selective (moe+layernorm)", "moe": "128 experts", "model": "Qwen3 30B-A3B"},
         "modules=moe+layernorm"),
        ({"recompute": ""}, "none"),
    ],
)  # fmt: skip
def test_what_is_recomputed(changes: dict[str, str], recompute: str) -> None:
    """Norms of dense networks are part of the GEMM behind them: nothing is saved by running them again."""
    assert run_case_of(TRAINED | changes).options["recompute"] == recompute


def test_what_a_source_says_beside_the_table_counts_as_not_read() -> None:
    case = run_case_of(TRAINED | {"source": "OPT-175B", "model": "OPT 175B", "micro_batch": ""})
    assert (case.options["micro_batch"], case.options["global_batch"]) == (8, 992)
    assert "micro_batch" in case.assumed
