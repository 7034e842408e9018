"""What `gnomon explain` opens of each kind of answer, field by field; other fields may hold anything."""

from __future__ import annotations

from typing import Any

from gnomon.report.intact import (
    Each,
    Filled,
    Optional,
    Some,
    amount,
    degree,
    plain,
    positive,
    signed,
    text,
    truth,
    whole,
)


def _estimate(value: Any) -> dict[str, Any]:
    return {"value": value, "low": amount, "high": amount, "provenance": text, "source": text}


def lacking(shape: Any) -> Optional:
    """A field that may be absent, and is not null."""
    return Optional(shape, null=False)


def nullable(shape: Any) -> Optional:
    """A field that is there, and may be null."""
    return Optional(shape, absent=False)


def _training(value: Any) -> str:
    return "is not the work of this answer"


def _both_sides(shape: dict[str, Any]) -> dict[str, Any]:
    """What was tried without a technique and with it; null where nothing fits."""
    return dict.fromkeys(("plain", "applied"), nullable(shape))


ESTIMATE, TIME = _estimate(amount), _estimate(positive)
TIMES = dict.fromkeys(("mean", "p90"), nullable(amount))
DEGREES = ("tp", "pp", "ep", "cp", "dp")
SETTINGS = Each(plain)

PREDICTION = {
    "title": lacking(text),
    "time_s": TIME,
    "memory_bytes": ESTIMATE,
    "energy_j": ESTIMATE,
    "cost_usd": ESTIMATE,
    "memory_parts": lacking(Each(amount)),
    "breakdown": [
        {
            "op": text,
            "kind": Optional(text),
            "time_s": ESTIMATE,
            "bound": text,
            "count": whole,
            "bytes": amount,
            "flops": amount,
            "arithmetic": Optional(text),
        }
    ],
    "inputs": {
        "on": Optional(text),
        "phase": Optional(text),
        "dtype": Optional(text),
        "arithmetic": Optional(text),
    },
}
FIT = {
    "title": lacking(text),
    "usable_bytes": amount,
    "total_bytes": amount,
    "parts": Each(amount),
    "kv_tokens": whole,
    "kv_blocks": whole,
}
SERVED = {
    "title": lacking(text),
    "requests": degree,
    "makespan_s": amount,
    "ttft_s": TIMES,
    "tpot_s": TIMES,
    "queue_s": TIMES,
    "output_tokens_per_s": amount,
    "total_tokens_per_s": amount,
    "busy_fraction": amount,
    "steps": whole,
    "inputs": {
        "model": text,
        "on": text,
        **{name: Optional(degree) for name in DEGREES},
        **{name: Optional(text) for name in ("dtype", "kv_dtype", "engine")},
        "settings": Optional(SETTINGS),
        "techniques": lacking([text]),
    },
}
PLANNED = {
    "title": lacking(text),
    "plans_considered": whole,
    "binding": nullable(text),
    "rejected": lacking(Each(whole)),
    "runner_up": Optional({"why": Optional(text), "label": Optional(text)}),
    "next_cheaper": Optional({"why": Optional(text), "label": Optional(text)}),
    "best": {
        "label": text,
        "output_tokens_per_s": amount,
        "tpot_s": TIMES,
        "usd_per_mtok": Optional(amount),
        "usd_h": amount,
        "margin": lacking(Each(Optional(signed))),
        "plan": {
            "model": text,
            "chip": text,
            "replicas": degree,
            "strategy": {"tp": degree, "ep": lacking(degree), "techniques": lacking([text])},
            "dtype": text,
            "kv_dtype": text,
            "engine": {"name": text, "version": Optional(text), "settings": Optional(SETTINGS)},
            "load": Optional({"input_tokens": Optional(whole), "output_tokens": Optional(whole)}),
        },
    },
}
RECIPE = {
    **dict.fromkeys((*DEGREES, "vp"), degree),
    "micro_batch": degree,
    "recompute": text,
    "zero": whole,
    "schedule": text,
    "expert_tp": Optional(whole),
    "cp_comm": lacking(text),
    "sequence_parallel": truth,
    "optimizer": text,
    "techniques": lacking([text]),
}
TRAINED = {
    "title": lacking(text),
    "step_time_s": TIME,
    "mfu": amount,
    "hfu": amount,
    "peak_memory_bytes": ESTIMATE,
    "usable_memory_bytes": amount,
    "fits": truth,
    "ranks": Some({"peak_memory_bytes": amount}),
    "host_bytes": Optional(amount),
    "memory_parts": [Each(amount)],
    "bubble_fraction": amount,
    "exposed_communication_s": amount,
    "step_parts": {
        "pipeline_s": amount,
        "optimizer_s": amount,
        **{name: lacking(amount) for name in ("gradient_reduction_s", "weight_gather_s", "waits_s")},
    },
    "micro_batches": degree,
    "energy_j": amount,
    "cost_usd": amount,
    "run": Filled(dict.fromkeys(("steps", "days", "cost_usd", "energy_kwh"), amount)),
    "inputs": {"on": text, "dtype": text, **RECIPE},
}
TRAINED_PLAN = {
    "title": lacking(text),
    "plans_considered": whole,
    "label": text,
    "bound_s": amount,
    "runner_up": Filled({"label": text, "why": text}),
    "rejected": Each(whole),
    "best": TRAINED,
}
VERIFIED = {
    "title": lacking(text),
    "conditions": Each(text),
    "parts": [
        {
            "part": text,
            "what": nullable(text),
            "unit": text,
            "predicted": amount,
            "measured": amount,
            "error": nullable(signed),
        }
    ],
}
_TRIED = {"title": lacking(text), "verdict": text, "gain": nullable(ESTIMATE), "missing": lacking(Each(text))}
TRIED_TRAINING = {
    "inputs": {
        "work": Optional(_training),
        **dict.fromkeys(("model", "on", "dtype", "optimizer", "engine"), text),
        **dict.fromkeys(("seq", "global_batch"), degree),
    },
    **_TRIED,
    **_both_sides(
        {
            "step_time_s": TIME,
            "mfu": amount,
            "peak_memory_bytes": amount,
            "cost_usd": amount,
            "degrees": dict.fromkeys((*DEGREES, "vp"), degree),
            "settings": {name: RECIPE[name] for name in RECIPE if name not in (*DEGREES, "vp", "techniques")},
            "techniques": [text],
        }
    ),
}
TRIED_SERVING = {
    "inputs": {"model": text, "on": text, "batch": degree, "context": whole, "dtype": nullable(text)},
    **_TRIED,
    **_both_sides(
        {
            "step_time_s": TIME,
            "prompt_time_s": TIME,
            "weight_bytes": amount,
            "sessions": whole,
            "techniques": [text],
        }
    ),
}
SHAPES: dict[str, Any] = {
    "predict": PREDICTION,
    "fit": FIT,
    "simulate.serve": SERVED,
    "plan.serve": PLANNED,
    "simulate.train": TRAINED,
    "plan.train": TRAINED_PLAN,
    "verify": VERIFIED,
}


def shape_of(kind: str, answer: Any) -> Any:
    """The shape of an answer; of a tried technique, that of the work it was tried in."""
    if kind != "try":
        return SHAPES[kind]
    inputs = answer.get("inputs")
    serving = isinstance(inputs, dict) and inputs.get("work") == "serving"
    return TRIED_SERVING if serving else TRIED_TRAINING
