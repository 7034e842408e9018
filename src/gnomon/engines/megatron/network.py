"""A model as Megatron-LM's options, and what of it they cannot express."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnomon.engines.megatron import dispatch
from gnomon.engines.megatron.options import Value
from gnomon.engines.training.rotary import LLAMA, is_number, rotary
from gnomon.graph.trained import unusual
from gnomon.spec import AttentionMixer, DenseFfn, LatentAttention, Model, MoeFfn
from gnomon.spec.training import FURTHER
from gnomon.spec.training_job import TrainingJob

VOCAB_MULTIPLE = 128
"""Megatron-LM's own default: the rows each tensor-parallel rank holds are a multiple of it."""


def options(job: TrainingJob) -> dict[str, Value]:
    """The options that make the model's shape."""
    model, dense = job.model, _dense(job.model)
    values: dict[str, Value] = {
        "--num-layers": model.layers,
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": model.blocks[0].feed_forward.inner if dense is None else dense.inner,
        **_heads(model),
        "--swiglu": dense is None or dense.gated,
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--attention-dropout": 0.0,
        "--hidden-dropout": 0.0,
        "--vocab-size": model.vocab,
        "--make-vocab-size-divisible-by": VOCAB_MULTIPLE,
        "--mtp-num-layers": sum(block.count for block in model.mtp) or False,
    }
    return values | _norm(job) | _biases(model) | _window(job) | _positions(job) | _mixture(job)


def _heads(model: Model) -> dict[str, Value]:
    mixer = model.blocks[0].mixer
    if isinstance(mixer, LatentAttention):
        return {
            "--num-attention-heads": mixer.heads,
            "--multi-latent-attention": True,
            "--q-lora-rank": mixer.q_rank or False,
            "--kv-lora-rank": mixer.kv_rank,
            "--qk-head-dim": mixer.nope_dim,
            "--qk-pos-emb-head-dim": mixer.rope_dim,
            "--v-head-dim": mixer.value_dim,
            "--qk-layernorm": True,
        }
    mixer = next((block.mixer for block in model.blocks if isinstance(block.mixer, AttentionMixer)), None)
    if mixer is None:
        return {}
    grouped = mixer.kv_heads != mixer.heads
    return {
        "--num-attention-heads": mixer.heads,
        "--group-query-attention": grouped,
        "--num-query-groups": mixer.kv_heads if grouped else False,
        "--kv-channels": mixer.head_dim,
        "--qk-layernorm": mixer.qk_norm,
    }


def not_expressed(job: TrainingJob) -> list[str]:
    """What of the model Megatron-LM's options do not express."""
    model, missing = job.model, []
    padded = math.ceil(model.vocab / (VOCAB_MULTIPLE * job.strategy.tp)) * VOCAB_MULTIPLE * job.strategy.tp
    if padded != model.vocab:
        missing.append(f"a vocabulary of {model.vocab:,} tokens: Megatron-LM pads it to {padded:,}")
    if not _has_all_biases(model) and _has_bias_beyond_qkv(model):
        missing.append("biases in some linear layers only: Megatron-LM has them in all, in query-key-value or in none")
    if len(_windows(job)) > 1:
        missing.append("a sliding window in some layers only: all of them attend to everything")
    if any(block.parallel for block in model.blocks):
        missing.append("parallel attention and feed-forward: Megatron-LM runs them one after the other")
    if any(block.norm_after for block in model.blocks):
        missing.append("norms after the halves of a layer: Megatron-LM has them before")
    if any(isinstance(block.mixer, AttentionMixer) and block.mixer.qk_norm_whole for block in model.blocks):
        missing.append("one norm over all heads' queries and keys: Megatron-LM norms each head")
    missing += [f"{what}: its options make a plain decoder" for what in dict.fromkeys(unusual(model))]
    if not model.mtp and any(one.option == FURTHER for one in model.not_modelled):
        missing.append("the layers that draft tokens beyond the next: they are neither priced nor trained")
    return missing + ([] if model.learned_positions else rotary(job.config).missing(LLAMA))


def experts(model: Model) -> MoeFfn | None:
    """Its experts, if it has any."""
    return next((block.ffn for block in model.blocks if isinstance(block.ffn, MoeFfn)), None)


def _dense(model: Model) -> DenseFfn | None:
    return next((block.ffn for block in model.blocks if isinstance(block.ffn, DenseFfn)), None)


def _has_all_biases(model: Model) -> bool:
    return all(
        isinstance(block.mixer, AttentionMixer)
        and block.mixer.qkv_bias
        and block.mixer.out_bias
        and isinstance(block.ffn, DenseFfn)
        and block.ffn.bias
        for block in model.blocks
    )


def _has_bias_beyond_qkv(model: Model) -> bool:
    return any(
        getattr(block.mixer, "out_bias", False)
        or getattr(block.mixer, "bias", False)
        or (isinstance(block.ffn, DenseFfn | MoeFfn) and block.ffn.bias)
        for block in model.blocks
    )


def _biases(model: Model) -> dict[str, Value]:
    everywhere = _has_all_biases(model)
    return {
        "--disable-bias-linear": not everywhere,
        "--add-qkv-bias": getattr(model.blocks[0].mixer, "qkv_bias", False) and not everywhere,
    }


def _windows(job: TrainingJob) -> set[int | None]:
    """The windows of its layers, where they cut anything off."""
    found = {getattr(block.mixer, "window", None) for block in job.model.blocks}
    return {None if window is None or window >= job.load.seq else window for window in found}


def _window(job: TrainingJob) -> dict[str, Value]:
    windows = _windows(job)
    window = next(iter(windows)) if len(windows) == 1 else None
    return {} if window is None else {"--window-size": f"{window - 1},0"}


def _norm(job: TrainingJob) -> dict[str, Value]:
    epsilon: Any = job.config.get("layer_norm_epsilon" if job.model.norm_bias else "rms_norm_eps")
    return {
        "--normalization": "LayerNorm" if job.model.norm_bias else "RMSNorm",
        "--norm-epsilon": float(epsilon) if is_number(epsilon) else False,
    }


def _positions(job: TrainingJob) -> dict[str, Value]:
    learned = job.model.learned_positions
    values: dict[str, Value] = {
        "--position-embedding-type": "learned_absolute" if learned else "rope",
        "--max-position-embeddings": learned or max(job.model.max_context, job.load.seq),
    }
    return values if learned else values | _rope(job.config)


def _rope(config: Mapping[str, Any]) -> dict[str, Value]:
    """The rotary embedding as config.json gives it."""
    found = rotary(config)
    values: dict[str, Value] = {"--rotary-base": found.whole_base} if found.whole_base else {}
    if found.kind == LLAMA and (factor := found.number("factor")):
        values |= {"--use-rope-scaling": True, "--rope-scaling-factor": factor}
    return values


def _mixture(job: TrainingJob) -> dict[str, Value]:
    model, mixture = job.model, experts(job.model)
    if mixture is None:
        return {}
    layers = "+".join(f"[{int(isinstance(block.ffn, MoeFfn))}]*{block.count}" for block in model.blocks)
    return {
        "--num-experts": mixture.experts,
        "--moe-router-topk": mixture.topk,
        "--moe-ffn-hidden-size": mixture.inner,
        "--moe-shared-expert-intermediate-size": mixture.shared_inner or False,
        "--moe-shared-expert-gate": mixture.shared_gate,
        "--moe-router-score-function": mixture.router if mixture.router != "softmax" else False,
        "--moe-router-enable-expert-bias": mixture.correction,
        "--moe-router-num-groups": mixture.groups if mixture.groups > 1 else False,
        "--moe-router-group-topk": mixture.topk_groups if mixture.groups > 1 else False,
        "--moe-layer-freq": f"({layers})" if _dense(model) else False,
        **dispatch.options(job),
        "--moe-grouped-gemm": True,
    }
