"""Made-up answers of every command, for tests of what is shown."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from gnomon.load import model, parse_pool
from gnomon.spec import EngineChoice, Estimate, Goal, Plan, Provenance, ServingLoad, Strategy, TrainingLoad
from gnomon.spec.answers import (
    Change,
    Fit,
    OperatorTime,
    PlanReport,
    PlanScore,
    Prediction,
    Resolved,
    ServingReport,
    TrainingPlanReport,
    TrainingReport,
    Verified,
)
from gnomon.spec.answers.run import RunReliability

GIB = 1024**3


def estimate(value: float, spread: float = 0.05, source: str = "H200 2026-11") -> Estimate:
    return Estimate(value, value * np.linspace(1 - spread, 1 + spread, 32), Provenance.FITTED, source)


@cache
def resolved(name: str, on: str) -> Resolved:
    return Resolved.of(model(name), parse_pool(on))


def operator(op: str, seconds: float, bound: str = "memory", **changes: Any) -> OperatorTime:
    base: dict[str, Any] = {"kind": "gemm", "count": 32, "flops": 2e11, "bytes": 4e9}
    return OperatorTime(op=op, time_s=estimate(seconds), bound=bound, **base | changes)


def prediction(**changes: Any) -> Prediction:
    base: dict[str, Any] = {
        "title": "Llama-3.1-8B, bf16, 1 x H200, vLLM 0.24: one decode step of 32 sequences at context 1,024",
        "time_s": estimate(0.0063),
        "memory_bytes": estimate(24.1 * GIB, 0),
        "energy_j": estimate(3.5),
        "cost_usd": estimate(0.0063 * 3.5 / 3600),
        "tokens_per_s": 32 / 0.0063,
        "bound": "memory",
        "bound_share": 0.81,
        "memory_parts": {"weights": 15.0 * GIB, "kv": 4.0 * GIB, "activations": 0.6 * GIB, "runtime": 4.5 * GIB},
        "memory_total_bytes": 140.4 * GIB,
        "memory_usable_bytes": 128.6 * GIB,
        "breakdown": (
            operator("qkv", 0.0006),
            operator("mlp gate and up", 0.00302),
            operator("scheduler and launches", 0.00031, "host", kind="host", count=1, flops=0.0, bytes=0.0),
        ),
        "inputs": {
            "model": "llama-3.1-8b",
            "on": "H200",
            "phase": "decode",
            "batch": 32,
            "context": 1024,
            "dtype": "bf16",
            "engine": "vllm",
            "tp": 1,
        },
        "resolved": resolved("llama-3.1-8b", "H200"),
    }
    return Prediction(**base | changes)


def fit(fits: bool = True) -> Fit:
    if fits:
        parts = {"weights": 15.0 * GIB, "activations": 1.2 * GIB, "runtime": 1.0 * GIB, "kv": 56.0 * GIB}
        return Fit(
            title="Llama-3.1-8B, bf16, 1 x H100",
            fits=True,
            usable_bytes=73.2 * GIB,
            total_bytes=79.6 * GIB,
            parts=parts,
            kv_blocks=28672,
            kv_tokens=458752,
            max_context=131072,
            max_batch=448,
            changes=(),
            inputs={"model": "llama-3.1-8b", "on": "H100", "tp": 1, "dtype": "bf16", "context": 1024},
            resolved=resolved("llama-3.1-8b", "H100"),
        )
    changes = (
        Change(what="2 GPUs, TP 2", kv_tokens=33000, kv_bytes=10.1 * GIB, flags={"on": "H100:2", "dtype": "bf16"}),
        Change(what="1 GPU, fp8 weights", kv_tokens=12000, kv_bytes=3.7 * GIB, flags={"dtype": "fp8"}),
    )
    return Fit(
        title="Llama-3.1-70B, bf16, 1 x H100",
        fits=False,
        usable_bytes=73.2 * GIB,
        total_bytes=79.6 * GIB,
        parts={"weights": 131.4 * GIB, "activations": 1.2 * GIB, "runtime": 1.0 * GIB, "kv": 0.0},
        kv_blocks=0,
        kv_tokens=0,
        max_context=0,
        max_batch=0,
        changes=changes,
        inputs={"model": "llama-3.1-70b", "on": "H100", "tp": 1, "dtype": "bf16", "context": 131072},
        resolved=resolved("llama-3.1-70b", "H100"),
    )


def times(mean: float) -> dict[str, float]:
    return {"mean": mean, "p50": 0.9 * mean, "p90": 1.5 * mean, "p95": 1.7 * mean, "p99": 2.2 * mean}


SERIES: dict[str, Any] = {
    "itl_s": times(0.011) | {"p99.9": 0.09},
    "goals": ({"goal": "ttft_p90", "limit_s": 0.1, "value_s": 0.09, "met": True},),
    "goodput_rps": 7.6,
    "goodput_share": 0.95,
    "step_shares": {"prefill": 0.3, "decode": 0.5, "idle": 0.2},
    "series": {
        "start_s": (0.0, 62.5),
        "bin_s": (62.5,),
        "arrivals_per_s": (8.0, 7.0),
        "running": (20.0, 30.0),
        "waiting": (0.0, 2.5),
        "kv_blocks": (2000.0, 4000.0),
        "cache_hit_rate": (0.5, None),
        "output_tokens_per_s": (2000.0, 2100.0),
        "prefill_share": (0.3, 0.3),
        "decode_share": (0.5, 0.5),
        "power_w": (430.0, 450.0),
        "clock": (0.9, None),
    },
    "distributions": {name: tuple(0.001 * at for at in range(101)) for name in ("ttft_s", "tpot_s", "e2e_s", "itl_s")},
}
"""What an answer has beyond `served` where series are asked for."""
OTHERWISE: dict[str, Any] = {
    "axes": {"chip": ("H100", "L40S"), "TP": ("1", "2"), "replicas": ("1", "2", "3"), "with": ("none", "fp8-kv")},
    "limits": {"kv_share": 1.0, "clock": 0.94, "preemptions": 3},
    "weighed": (
        {"name": "int4-weights", "lossless": False, "used": True, "why": "$2.10/h, $3.29/h without it"},
        {"name": "kv-offloading", "lossless": True, "used": False, "why": "prompts of the load share no beginnings"},
    ),
    "sensitivity": (
        {"input": "rate", "now": 8.0, "holds_to": 9.0, "factor": 1.125,
         "next": {"label": "3 x (H100, TP 4, fp8)", "usd_h": 39.48}},
        {"input": "shared prompts", "now": 0.6, "holds_to": None, "factor": 0.0, "next": {"why": "was not looked for"}},
        {"input": "price of H100", "now": 3.29, "holds_to": 4.2, "factor": 1.277,
         "next": {"label": "4 x (L40S, TP 1, fp8)", "usd_h": 33.6}},
    ),
}  # fmt: skip
"""What a plan's answer has where techniques are weighed and inputs changed."""
BY_RATE = tuple(
    {"rate_per_s": rate, "ttft_s": times(0.01 * rate), "tpot_s": times(0.002 * rate), "output_tokens_per_s": 256 * rate,
     "meets": rate < 9}
    for rate in (2.0, 8.0, 10.0)
)  # fmt: skip


def served(**changes: Any) -> ServingReport:
    base: dict[str, Any] = {
        "title": "Llama-3.1-8B, bf16, 1 x H100, vLLM 0.24: 1,000 requests",
        "requests": 1000,
        "saturation_rps": 19.5,
        "makespan_s": 125.0,
        "ttft_s": times(0.06),
        "tpot_s": times(0.011),
        "e2e_s": times(2.9),
        "queue_s": times(0.012),
        "output_tokens_per_s": 2041.0,
        "total_tokens_per_s": 10200.0,
        "energy_j": 55000.0,
        "power_w": 440.0,
        "cost_usd": 0.114,
        "usd_per_mtok": 0.447,
        "preemptions": 0,
        "steps": 10533,
        "busy_fraction": 0.83,
        "kv_blocks": 28672,
        "peak_kv_blocks": 4100,
        "inputs": {
            "model": "llama-3.1-8b",
            "on": "H100",
            "dtype": "bf16",
            "engine": "vllm",
            "tp": 1,
            "rate": 8.0,
            "input": 1024,
            "output": 256,
            "requests": 1000,
            "seed": 0,
            "trace": None,
            "settings": {},
        },
        "resolved": resolved("llama-3.1-8b", "H100"),
    }
    return ServingReport(**base | changes)


def a_plan() -> Plan:
    return Plan(
        id="",
        model="llama-3.1-70b",
        chip="H100-SXM-80GB",
        replicas=2,
        strategy=Strategy(tp=4),
        dtype="fp8",
        kv_dtype="fp8",
        engine=EngineChoice(version="0.24.0", settings={"max_num_batched_tokens": 2048}),
        load=ServingLoad(rate_per_s=8.0, input_tokens=1024, output_tokens=256),
        goals=(Goal("ttft", "p90", 1.0), Goal("tpot", "p90", 0.05)),
    )


def score(label: str, **changes: Any) -> PlanScore:
    base: dict[str, Any] = {
        "plan": a_plan(),
        "feasible": True,
        "usd_h": 26.32,
        "usd_per_mtok": 3.57,
        "wh_per_mtok": 610.0,
        "power_w": 4497.0,
        "output_tokens_per_s": 2048.0,
        "ttft_s": times(0.47),
        "tpot_s": times(0.025),
        "max_rate_per_s": 11.2,
        "margin": {"ttft_p90": 0.29, "tpot_p90": 0.24},
        "label": label,
    }
    made = base | changes
    drawn = {name: {part: estimate(value) for part, value in made[name].items()} for name in ("ttft_s", "tpot_s")}
    figures = {name: estimate(made[name]) for name in ("wh_per_mtok", "power_w", "usd_per_mtok", "output_tokens_per_s")}
    return PlanScore(**{"predicted": drawn | figures} | made)


def planned(**changes: Any) -> PlanReport:
    best = score("2 x (H100, TP 4, fp8, chunked prefill 2048)")
    base: dict[str, Any] = {
        "title": "Llama-3.1-70B on H100:16, 1,024 in and 256 out at 8/s: cheapest plan within goals",
        "plans_considered": 48312,
        "plans_fit": 31200,
        "plans_simulated": 9,
        "requests_simulated": 20000,
        "requests_searched": 2400,
        "router": "random",
        "best": best,
        "pareto": (best, score("4 x (H100, TP 4, bf16)", usd_h=52.64, usd_per_mtok=7.1, ttft_s=times(0.2))),
        "binding": "tpot_p90",
        "runner_up": {
            "label": "4 x (H100, TP 2, fp8)",
            "usd_h": 26.32,
            "ttft_s": times(0.4),
            "tpot_s": times(0.02),
            "why": "15% lower TTFT",
        },
        "next_cheaper": {"label": "3 x (H100, TP 2, fp8)", "usd_h": 19.74, "why": "misses tpot_p90 by 6 ms"},
        "near_ties": ({"label": "2 x (H200, TP 2, fp8)", "usd_h": 27.4, "buys": ["TPOT p90 12 ms instead of 38 ms"]},),
        "rejected": {"does not fit": 17112, "cannot beat the best": 31191},
        "goals": best.plan.goals,
        "command": "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --quantization fp8",
        "resolved": resolved("llama-3.1-70b", "H100:16"),
    }
    return PlanReport(**base | changes)


def measured(part: str, what: str, rate: float | None, seconds: float, error: float) -> dict[str, Any]:
    figures = {"measured": seconds, "predicted": seconds * (1 + error), "error": error, "unit": "s"}
    return {"part": part, "rate_per_s": rate, "what": what} | figures


def verified() -> Verified:
    return Verified(
        title="Llama-3.1-8B, bf16, 1 x H200-SXM-141GB, vLLM 0.24: measured 2026-11-15 beside predicted",
        parts=(
            measured("memory", "KV blocks", None, 61234.0, 0.004) | {"unit": "blocks"},
            measured("ttft", "TTFT p90", 8.0, 0.064, -0.047),
            measured("decode", "TPOT p90", 8.0, 0.0079, 0.025),
            measured("decode alone", "32 sequences at context 1,024", None, 0.0061, 0.01),
        ),
        conditions={"date": "2026-11-15", "gpu": "NVIDIA H200", "vllm": "0.24.0"},
        measured={},
    )


def verified_training() -> Verified:
    return Verified(
        title="GPT-1.7B, bf16, 1 x H200-SXM-141GB, PyTorch 2.11: a step, measured 2026-11-15 beside predicted",
        parts=(
            measured("step", "step time", None, 0.84, -0.035) | {"low": 0.79, "high": 0.85},
            measured("memory", "peak memory", None, 39.0 * GIB, -0.002) | {"unit": "bytes"},
        ),
        conditions={"date": "2026-11-15", "torch": "2.11.0"},
        measured={},
    )


def a_training_plan() -> Plan:
    settings = {"micro_batch": 1, "schedule": "interleaved", "recompute": "selective", "zero": 1}
    return Plan(
        model="gpt3-175b",
        chip="A100-SXM-80GB",
        replicas=1,
        strategy=Strategy(tp=8, pp=2, vp=6, dp=2),
        dtype="fp16",
        engine=EngineChoice(name="megatron", version="2026.08", settings=settings),
        load=TrainingLoad(seq=2048, global_batch=1536, tokens=300e9),
    )


def trained(**changes: Any) -> TrainingReport:
    """Two pipeline ranks, the first fuller, and a bubble of a tenth."""
    plan = a_training_plan()
    parts = {"weights": 4.0, "gradients": 8.0, "optimizer": 24.0, "activations": 30.0, "working": 2.0}
    parts = {name: size * GIB for name, size in parts.items()}
    light = parts | {"activations": 23.0 * GIB}
    peaks = [sum(parts.values()), sum(light.values())]
    base: dict[str, Any] = {
        "title": "GPT-3-175B, fp16, 32 x A100-SXM-80GB, Megatron-LM 2026.08: a step of 1,536 sequences of 2,048 tokens",
        "step_time_s": estimate(30.9),
        "mfu": 0.512,
        "hfu": 0.524,
        "tokens_per_s_per_gpu": 99.4,
        "peak_memory_bytes": estimate(peaks[0], 0.0),
        "usable_memory_bytes": 76.9 * GIB,
        "fits": True,
        "ranks": tuple(
            {"rank": rank, "pipeline_rank": rank // 16, "peak_memory_bytes": peaks[rank // 16]} for rank in range(32)
        ),
        "memory_parts": (parts, light),
        "bubble_fraction": 0.1,
        "exposed_communication_s": 2.1,
        "step_parts": {"pipeline_s": 30.0, "gradient_reduction_s": 0.5, "optimizer_s": 0.4, "weight_gather_s": 0.0},
        "micro_batches": 768,
        "energy_j": 32 * 350.0 * 30.9,
        "cost_usd": 0.78,
        "run": {"steps": 95367.4, "days": 34.1, "cost_usd": 1.9e6, "energy_kwh": 612e3},
        "targets": ("megatron", "torchrun"),
        "inputs": {
            "model": "gpt3-175b",
            "on": "A100-SXM-80GB:32",
            "dtype": "fp16",
            "seq": 2048,
            "global_batch": 1536,
            "tokens": 300e9,
            "engine": "megatron@2026.08",
            "optimizer": "adamw",
            "sequence_parallel": True,
        }
        | {"tp": 8, "pp": 2, "vp": 6, "cp": 1, "ep": 1, "dp": 2}
        | dict(plan.engine.settings),
        "resolved": resolved("gpt3-175b", "A100-SXM-80GB:32"),
        "plan": plan,
    }
    return TrainingReport(**base | changes)


def interrupted(**changes: Any) -> RunReliability:
    """A run that fails every three hours, with checkpoints twice as far apart as they should be."""
    base: dict[str, Any] = {
        "goodput": estimate(0.912, 0.03),
        "days": estimate(37.4, 0.05),
        "days_without_failures": 34.1,
        "failures": {"name": "llama-3", "per_gpu_hour": 1.97e-5, "hardware_share": 0.78, "mtbf_s": 11135.0}
        | {"count": 289.6, "source": "The Llama 3 Herd of Models"},
        "checkpoints": {"bytes": 5.68e12, "mode": "asynchronous", "to": "shared", "stall_s": 0.35, "write_s": 22.8}
        | {"load_s": 2.8, "every_steps": 20, "interval_s": 182.0, "best_every_steps": 10, "best_interval_s": 91.0}
        | {"young_interval_s": 88.0, "goodput_at_best": 0.915},
        "lost": {"checkpoint_stalls": 0.003, "lost_work": 0.007, "detection": 0.052, "restarts": 0.026}
        | {"loading": 0.0, "repairs": 0.0},
        "spares": 35,
    }
    return RunReliability(**base | changes)


def trained_plan(**changes: Any) -> TrainingPlanReport:
    base: dict[str, Any] = {
        "title": trained().title,
        "plans_considered": 11_698_528,
        "plans_fit": 1_828_415,
        "plans_timed": 13,
        "best": trained(),
        "label": "TP 8, PP 2, VP 6, DP 2, micro-batch 1, selective recompute, ZeRO-1, interleaved",
        "bound_s": 30.95,
        "runner_up": {"label": "TP 4, PP 4, DP 2, micro-batch 2", "step_time_s": 31.2, "why": "0.97% slower"},
        "rejected": {"does not fit in memory": 9_870_113, "cannot be faster": 1_828_402, "timed and slower": 12},
        "shortage_bytes": (0.2 * GIB, 61.0 * GIB),
        "command": "torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py",
        "inputs": {
            "model": "gpt3-175b",
            "cluster": "A100-SXM-80GB:32",
            "seq": 2048,
            "global_batch": 1536,
            "tokens": 300e9,
            "optimizer": "adamw",
            "dtype": "fp16",
            "engine": "megatron@2026.08",
        },
        "resolved": resolved("gpt3-175b", "A100-SXM-80GB:32"),
    }
    return TrainingPlanReport(**base | changes)
