"""Made-up answers of every command, for tests of what is shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.api.results import (
    Change,
    Fit,
    OperatorTime,
    PlanReport,
    PlanScore,
    Prediction,
    ServingReport,
    Verified,
)
from gnomon.spec import EngineChoice, Estimate, Goal, Plan, Provenance, ServingLoad, Strategy

GIB = 1024**3


def estimate(value: float, spread: float = 0.05, source: str = "H200 2026-11") -> Estimate:
    return Estimate(value, value * np.linspace(1 - spread, 1 + spread, 32), Provenance.FITTED, source)


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
    )


def times(mean: float) -> dict[str, float]:
    return {"mean": mean, "p50": 0.9 * mean, "p90": 1.5 * mean, "p95": 1.7 * mean, "p99": 2.2 * mean}


def served(**changes: Any) -> ServingReport:
    base: dict[str, Any] = {
        "title": "Llama-3.1-8B, bf16, 1 x H100, vLLM 0.24: 1,000 requests",
        "requests": 1000,
        "makespan_s": 125.0,
        "ttft_s": times(0.06),
        "tpot_s": times(0.011),
        "e2e_s": times(2.9),
        "queue_s": times(0.012),
        "output_tokens_per_s": 2041.0,
        "total_tokens_per_s": 10200.0,
        "energy_j": 55000.0,
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
        "output_tokens_per_s": 2048.0,
        "ttft_s": times(0.47),
        "tpot_s": times(0.025),
        "max_rate_per_s": 11.2,
        "margin": {"ttft_p90": 0.29, "tpot_p90": 0.24},
        "label": label,
    }
    return PlanScore(**base | changes)


def planned(**changes: Any) -> PlanReport:
    best = score("2 x (H100, TP 4, fp8, chunked prefill 2048)")
    base: dict[str, Any] = {
        "title": "Llama-3.1-70B on H100:16, 1,024 in and 256 out at 8/s: cheapest plan within goals",
        "plans_considered": 48312,
        "plans_fit": 31200,
        "plans_simulated": 9,
        "requests_simulated": 20000,
        "best": best,
        "pareto": (best, score("4 x (H100, TP 4, bf16)", usd_h=52.64, usd_per_mtok=7.1, ttft_s=times(0.2))),
        "binding": "tpot_p90",
        "runner_up": {"label": "3 x (H100, TP 2, fp8)", "why": "misses TPOT p90 by 6 ms"},
        "rejected": {"does not fit": 17112, "bounded away": 31191},
        "goals": best.plan.goals,
        "seconds": 1.4,
        "command": "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4 --quantization fp8",
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
