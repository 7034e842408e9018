"""Rows of published TensorRT-LLM benchmarks (PyTorch backend) as options of a deployment, or why they cannot be.

How servers were started: `benchmarks/` of github.com/SemiAnalysisAI/InferenceX (`trtllm-serve` over HTTP, closed loop);
the perf overview of TensorRT-LLM's documentation from 0.19 on (`trtllm-bench throughput`: all requests at once,
settings by its own heuristic, `tensorrt_llm/bench/build/tuning.py`); AIConfigurator's validation runs (closed loop
behind Dynamo, whose settings are not published: captured sizes up to the clients are assumed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from gnomon.accuracy.deployment_rows import (
    CONTINUOUS,
    LEAST,
    STATIC,
    DeploymentCase,
    Row,
    Unfit,
    positive,
)
from gnomon.catalog import model_entry
from gnomon.errors import InputError
from gnomon.graph.dtypes import width
from gnomon.load import chip as find_chip
from gnomon.load import model as load_model

FAMILY, ENGINE = "TensorRT-LLM", "trtllm"
GROUP = "TensorRT-LLM of 2025-26"
NAMES = {
    "LLaMA v3.3 70B": "llama-3.3-70b",
    "Llama 3.3 70B": "llama-3.3-70b",
    "Llama 3.1 405B": "llama-3.1-405b",
    "Llama 3.1 70B": "llama-3.1-70b",
    "Llama 3.1 8B": "llama-3.1-8b",
    "GPT-OSS 120B": "gpt-oss-120b",
    "Qwen3 30B A3B": "qwen3-30b-a3b",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
}
"""Networks as the perf overview names them, and others whose names the catalog does not have."""
AS_STORED = ("gpt-oss-120b",)
"""Published in mxfp4."""
REQUESTS = {
    (128, 128): 30000, (128, 2048): 3000, (128, 4096): 1500, (500, 2000): 3000, (1000, 1000): 3000,
    (1000, 2000): 1500, (2048, 128): 3000, (2048, 2048): 1500, (5000, 500): 1500, (20000, 2000): 1000,
    (1024, 1024): 3000, (1024, 2048): 1500, (1024, 8192): 1500, (8192, 1024): 1500, (1024, 32768): 1000,
    (32768, 1024): 1000,
}  # fmt: skip
"""Requests of a run of the perf overview by input and output length; of the last six, which later releases have, as
many as of the like ones."""
BENCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192)
BENCH_SHARE = 0.95
"""Of the memory, as the perf overview has it in many cases."""
MOE = "experts under attention data parallelism, which is not simulated"
WAITED = 1024
"""Prompts and outputs of this length waited in InferenceX's script to run several at once
(`batch_wait_timeout_iters`), on fewer than eight GPUs: their first tokens are not compared."""


def case_of(row: Row) -> DeploymentCase:
    """The row as a case to compare; raises `Unfit`."""
    _check(row)
    model, given, made = known_model(row["model"]), count(row, "isl"), count(row, "osl")
    if load_model(model).towers:
        raise Unfit("a decoder with a vision tower, whose weights and cache are not separated")
    if given + made > load_model(model).max_context:
        raise Unfit("longer than the maximum context of the model")
    options, clients = OPTIONS[row["source"]](row, model, given, made)
    return DeploymentCase(
        row=row,
        group=GROUP,
        model=model,
        options=options | {"on": f"{row['gpu']}:{degree(row, 'n_gpus')}", "tp": degree(row, "tp")},
        load=STATIC if row["source"] == "trtllm_docs" else CONTINUOUS,
        clients=clients,
        input_tokens=given,
        output_tokens=made,
        least=LEAST.get(row["source"], 1.0),
        measured=_measured(row, given, made),
        engine=ENGINE,
    )


def _check(row: Row) -> None:
    if row["source"] not in OPTIONS:
        raise Unfit("no engine for TensorRT engines of 2023-24, or conditions not recorded")
    if row["mode"] != "agg":
        raise Unfit(
            "prefill and decode disaggregated" if row["mode"] == "disagg" else "static batches of the C++ runtime"
        )
    if row["tier"] != "A":
        raise Unfit(f"conditions not recorded (tier B): {row['quality'].partition(';')[0]}")
    if row["source"] == "trtllm_docs" and "PyTorch backend" not in row["source_detail"]:
        raise Unfit("no engine for TensorRT engines of 2024")
    if degree(row, "dp") > 1 or "attention-DP" in row["plan_detail"]:
        raise Unfit("data-parallel attention, which is not simulated")
    if row["plan_detail"] or degree(row, "tp") != degree(row, "n_gpus"):
        raise Unfit("plan unclear: tensor-parallel degree and GPUs differ")


def count(row: Row, name: str) -> int:
    return round(positive(row, name))


def degree(row: Row, name: str) -> int:
    return count(row, name) if row[name] else 1


def known_model(name: str) -> str:
    try:
        return NAMES.get(name) or model_entry(name).name
    except InputError:
        raise Unfit("model not in the catalog") from None


def weight_dtype(precision: str, model: str) -> str | None:
    """The format to ask for; None is that of the checkpoint."""
    if model in AS_STORED:
        if "fp4" not in precision:
            raise Unfit(f"format '{precision}' of a network that is not published in it")
        return None
    if precision in ("fp8", "bf16"):
        return precision
    if "nvfp4" in precision:
        return "nvfp4"
    raise Unfit(f"format '{precision or 'not recorded'}'")


def _measured(row: Row, given: int, made: int) -> dict[str, float]:
    if row["source"] == "trtllm_docs":
        return {"tokens/s": positive(row, "output_tok_s")}
    found = {"TPOT": positive(row, "tpot_ms") / 1e3}
    waited = given == made == WAITED and "Llama" in row["model"] and degree(row, "tp") < 8
    if row["source"] == "inferencex" and not waited:
        found["TTFT"] = positive(row, "ttft_ms") / 1e3
    return found


def _inferencex(row: Row, model: str, given: int, made: int) -> tuple[dict[str, Any], int]:
    """`llama-config.yml` and `gptoss_fp4_b200_trt_slurm.sh`."""
    clients = count(row, "concurrency")
    settings: dict[str, Any] = {
        "max_seq_len": given + made + 256,
        "enable_block_reuse": False,
        "cuda_graph_enable_padding": True,
        "cuda_graph_max_batch_size": 1024,
        "max_num_tokens": 16384,
        "stream_interval": 10,
    }
    if model.startswith("gpt-oss"):
        settings |= {"cuda_graph_max_batch_size": clients, "max_batch_size": 512, "max_num_tokens": 20000}
        settings |= {"stream_interval": 20, "kv_cache_free_gpu_memory_fraction": 0.85, "num_postprocess_workers": 4}
    options = {"dtype": weight_dtype(row["weight_precision"], model), "kv_dtype": "fp8"}
    return options | {"ep": degree(row, "ep"), "settings": settings}, clients


def _validated(row: Row, model: str, given: int, made: int) -> tuple[dict[str, Any], int]:
    clients = count(row, "concurrency")
    settings = {
        "max_seq_len": given + made + 256,
        "enable_block_reuse": False,
        "cuda_graph_enable_padding": True,
        "cuda_graph_max_batch_size": max(clients, 8),
    }
    ep = degree(row, "ep")
    if ep not in (1, degree(row, "tp")):
        raise Unfit("experts spread over some of the ranks and cut over the others")
    dtype = weight_dtype(row["weight_precision"] or "bf16", model)
    return {"dtype": dtype, "kv_dtype": None, "ep": ep, "settings": settings}, clients


def _benched(row: Row, model: str, given: int, made: int) -> tuple[dict[str, Any], int]:
    """`trtllm-bench throughput` with the published YAML, on ModelOpt's checkpoints, whose cache is in fp8."""
    if load_model(model).is_moe and degree(row, "n_gpus") > 1:
        raise Unfit(MOE)
    if (given, made) not in REQUESTS:
        raise Unfit("number of requests not published")
    most, tokens = tuned(row, model, given, made)
    settings = {
        "max_seq_len": given + made,
        "max_batch_size": most,
        "max_num_tokens": max(tokens, given + most),
        "kv_cache_free_gpu_memory_fraction": BENCH_SHARE,
        "cuda_graph_enable_padding": True,
        "cuda_graph_batch_sizes": list(BENCH_SIZES),
        "served_by": "trtllm-bench",
    }
    dtype = weight_dtype(row["weight_precision"], model)
    return {"dtype": dtype, "kv_dtype": "fp8", "ep": 1, "settings": settings}, REQUESTS[given, made]


def tuned(row: Row, model: str, given: int, made: int) -> tuple[int, int]:
    """Requests and tokens of a step that `trtllm-bench` picks (`calc_engine_setting`, `finetune_setting`). Steps have
    room for a prompt beside the decodes at least: with less, which the heuristic gives for prompts of 5,000 tokens,
    prompts would run alone, and throughput be a twentieth of what was published."""
    network, chips = load_model(model), degree(row, "n_gpus")
    stored = network.parameters * width("fp8" if row["weight_precision"] == "fp8" else "nvfp4")
    left = chips * find_chip(row["gpu"]).memory_bytes - stored
    requests = min(left * BENCH_SHARE / (network.kv_bytes_per_token(1.0) * (given + made)), 4096)
    raw = min(requests * (1 + given / made), 32768)
    step = 32 if requests < 256 else 128 if requests < 1024 else 256
    grain = 256 if raw < 4096 else 512 if raw < 8192 else 1024
    return max(64, step * math.ceil(requests / step)), max(2048, grain * math.ceil(raw / grain))


OPTIONS: Mapping[str, Callable[[Row, str, int, int], tuple[dict[str, Any], int]]] = {
    "inferencex": _inferencex,
    "nv_aic_validation": _validated,
    "trtllm_docs": _benched,
}
