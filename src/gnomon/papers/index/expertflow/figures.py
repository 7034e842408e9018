"""ExpertFlow (He et al. 2024): GPU memory with a few experts of each layer cached, beside all experts on the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import gnomon
from gnomon.papers.base import Ours
from gnomon.papers.shapes import network
from gnomon.spec import Model
from gnomon.spec.answers import Fit

CARD, TOKENS, CACHED = "A40", 512, 4
QWEN, QWEN_EXPERTS, SWITCH_EXPERTS = "qwen1.5-moe-a2.7b", 60, 128
WIDTH, INNER, HEADS, LAYERS, WORDS = 768, 3072, 12, 24, 32128
PLAIN = {"max_num_seqs": 1, "enforce_eager": True, "max_num_batched_tokens": TOKENS}
GIGA = 1e9


@cache
def _switch() -> Model:
    mixer = {"kind": "attention", "heads": HEADS, "kv_heads": HEADS, "head_dim": WIDTH // HEADS}
    dense = {"kind": "dense", "inner": INNER, "gated": False}
    experts = {"kind": "moe", "experts": SWITCH_EXPERTS, "topk": 1, "inner": INNER, "gated": False}
    layers = [{"count": LAYERS // 2, "mixer": mixer, "ffn": ffn} for ffn in (dense, experts)]
    fields = {"vocab": WORDS, "max_context": TOKENS, "dtype": "bf16", "tied_embeddings": True}
    return network("switch-base-128", hidden=WIDTH, blocks=layers, **fields)


def _held(model: str | Model, techniques: Sequence[str] = ()) -> float:
    """All but the room that is left for other sequences."""
    fit: Fit = gnomon.fit(model, on=CARD, context=TOKENS, settings=PLAIN, techniques=techniques)
    own = fit.parts["kv"] * TOKENS / max(fit.kv_tokens, TOKENS)
    return sum(size for part, size in fit.parts.items() if part != "kv") + own


def figures() -> Iterator[Ours]:
    for name, model, experts in (("Switch-128", _switch(), SWITCH_EXPERTS), ("Qwen1.5-MoE", QWEN, QWEN_EXPERTS)):
        every, some = _held(model), _held(model, [f"expert-offload:cached={CACHED / experts:.6g}"])
        yield f"{name}: GPU memory that is saved", 100 * (1 - some / every)
        yield f"{name}: all experts on the GPU", every / GIGA
        yield f"{name}: four experts of a layer cached", some / GIGA
