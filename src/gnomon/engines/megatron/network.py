"""A model as Megatron-LM's options, and what of it they cannot say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnomon.engines.megatron.options import Value
from gnomon.engines.training.job import Job
from gnomon.load.fields import shown
from gnomon.load.hf import config_of
from gnomon.spec import DenseFfn, Model, MoeFfn

VOCAB_MULTIPLE = 128
"""Megatron-LM's own default: the rows each tensor-parallel rank holds are a multiple of it."""


def options(job: Job) -> dict[str, Value]:
    """The options that make the model's shape."""
    model, mixer = job.model, job.model.blocks[0].attention
    dense, grouped = _dense(model), mixer.kv_heads != mixer.heads
    values: dict[str, Value] = {
        "--num-layers": model.layers,
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": model.blocks[0].feed_forward.inner if dense is None else dense.inner,
        "--num-attention-heads": mixer.heads,
        "--group-query-attention": grouped,
        "--num-query-groups": mixer.kv_heads if grouped else False,
        "--kv-channels": mixer.head_dim,
        "--qk-layernorm": mixer.qk_norm,
        "--swiglu": dense is None or dense.gated,
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--attention-dropout": 0.0,
        "--hidden-dropout": 0.0,
        "--vocab-size": model.vocab,
        "--make-vocab-size-divisible-by": VOCAB_MULTIPLE,
    }
    return values | _norm(job) | _biases(model) | _window(job) | _positions(job) | _mixture(model)


def not_expressed(job: Job) -> list[str]:
    """What of the model Megatron-LM's options do not say."""
    model, said = job.model, []
    padded = math.ceil(model.vocab / (VOCAB_MULTIPLE * job.plan.strategy.tp)) * VOCAB_MULTIPLE * job.plan.strategy.tp
    if padded != model.vocab:
        said.append(f"a vocabulary of {model.vocab:,} tokens: Megatron-LM pads it to {padded:,}")
    if not _has_all_biases(model) and _has_bias_beyond_qkv(model):
        said.append("biases in some linear layers only: Megatron-LM has them in all, in query-key-value or in none")
    if len(_windows(job)) > 1:
        said.append("a sliding window in some layers only: all of them attend to everything")
    return said + ([] if model.learned_positions else _rope(job.plan.model)[1])


def experts(model: Model) -> MoeFfn | None:
    """Its experts, if it has any."""
    return next((block.ffn for block in model.blocks if isinstance(block.ffn, MoeFfn)), None)


def _dense(model: Model) -> DenseFfn | None:
    return next((block.ffn for block in model.blocks if isinstance(block.ffn, DenseFfn)), None)


def _has_all_biases(model: Model) -> bool:
    return all(
        block.attention.qkv_bias and block.attention.out_bias and isinstance(block.ffn, DenseFfn) and block.ffn.bias
        for block in model.blocks
    )


def _has_bias_beyond_qkv(model: Model) -> bool:
    return any(
        block.attention.out_bias or (isinstance(block.ffn, DenseFfn) and block.ffn.bias) for block in model.blocks
    )


def _biases(model: Model) -> dict[str, Value]:
    everywhere = _has_all_biases(model)
    return {
        "--disable-bias-linear": not everywhere,
        "--add-qkv-bias": model.blocks[0].attention.qkv_bias and not everywhere,
    }


def _windows(job: Job) -> set[int | None]:
    """The windows of its layers, where they cut anything off."""
    found = {block.attention.window for block in job.model.blocks}
    return {None if window is None or window >= job.load.seq else window for window in found}


def _window(job: Job) -> dict[str, Value]:
    windows = _windows(job)
    window = next(iter(windows)) if len(windows) == 1 else None
    return {} if window is None else {"--window-size": f"{window - 1},0"}


def _norm(job: Job) -> dict[str, Value]:
    epsilon: Any = config_of(job.plan.model).get("layer_norm_epsilon" if job.model.norm_bias else "rms_norm_eps")
    return {
        "--normalization": "LayerNorm" if job.model.norm_bias else "RMSNorm",
        "--norm-epsilon": float(epsilon) if _number(epsilon) else False,
    }


def _positions(job: Job) -> dict[str, Value]:
    learned = job.model.learned_positions
    values: dict[str, Value] = {
        "--position-embedding-type": "learned_absolute" if learned else "rope",
        "--max-position-embeddings": learned or max(job.model.max_context, job.load.seq),
    }
    return values if learned else values | _rope(job.plan.model)[0]


def _rope(ref: str) -> tuple[dict[str, Value], list[str]]:
    """The rotary embedding as config.json gives it, and what of it cannot be said."""
    config = config_of(ref)
    scaling: Any = config.get("rope_parameters") or config.get("rope_scaling")
    scaling = scaling if isinstance(scaling, Mapping) else {}
    base: Any = config.get("rope_theta", scaling.get("rope_theta"))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    values: dict[str, Value] = {}
    said = []
    if _number(base) and base == base // 1:
        values["--rotary-base"] = int(base)
    elif base is not None:
        said.append(f"a rotary base of {shown(base)}")
    if kind == "llama3" and _number(scaling.get("factor")):
        values |= {"--use-rope-scaling": True, "--rope-scaling-factor": float(scaling["factor"])}
    elif kind != "default":
        said.append(f"rotary positions of the kind {shown(kind)}")
    return values, said


MOST = 1e300
"""No setting of a network is larger, and no larger whole number is a float."""


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MOST


def _mixture(model: Model) -> dict[str, Value]:
    mixture = experts(model)
    if mixture is None:
        return {}
    layers = "+".join(f"[{int(isinstance(block.ffn, MoeFfn))}]*{block.count}" for block in model.blocks)
    return {
        "--num-experts": mixture.experts,
        "--moe-router-topk": mixture.topk,
        "--moe-ffn-hidden-size": mixture.inner,
        "--moe-shared-expert-intermediate-size": mixture.shared_inner or False,
        "--moe-layer-freq": f"({layers})" if _dense(model) else False,
        "--moe-token-dispatcher-type": "alltoall",
        "--moe-grouped-gemm": True,
    }
