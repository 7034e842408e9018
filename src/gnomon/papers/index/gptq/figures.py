"""GPTQ (Frantar et al. 2022): OPT-175B in three bits on one GPU, and how much sooner its tokens come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import gnomon
from gnomon.load.fields import Fields
from gnomon.load.hf import shapes
from gnomon.papers.base import Ours
from gnomon.spec import Model
from gnomon.spec.answers import Fit

CONFIG = {
    "model_type": "opt",
    "architectures": ["OPTForCausalLM"],
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "hidden_size": 12288,
    "word_embed_proj_dim": 12288,
    "ffn_dim": 49152,
    "num_attention_heads": 96,
    "num_hidden_layers": 96,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "torch_dtype": "float16",
}
TOKENS, LONGEST = 128, 2048
THREE, FOUR = ("int4-weights:bits=3,group=0",), ("int4-weights:group=0",)
PLAIN = {"gpu_memory_utilization": 1.0, "max_num_seqs": 1, "max_num_batched_tokens": LONGEST, "enforce_eager": True}
GIB, MILLI = 1024.0**3, 1e-3
CARDS = {"A100-SXM-80GB": (5, 1), "RTX-A6000": (8, 2)}
"""GPUs in 16 bits and in three."""
MOST = 16


@cache
def _model() -> Model:
    return replace(shapes(Fields(CONFIG, "OPT-175B")), name="OPT-175B")


def _fit(chip: str, stages: int, techniques: Sequence[str]) -> Fit:
    return gnomon.fit(
        _model(), on=f"{chip}:{stages}", tp=1, pp=stages, context=LONGEST, settings=PLAIN, techniques=techniques
    )


def _fewest(chip: str, techniques: Sequence[str]) -> int:
    """GPUs in a row that hold the weights and the cache of one sequence of the longest."""
    return next((n for n in range(1, MOST) if _fit(chip, n, techniques).fits), MOST)


def _token_ms(chip: str, stages: int, techniques: Sequence[str]) -> float:
    """One token at the middle of the answer."""
    found = gnomon.predict(
        _model(), on=f"{chip}:{stages}", tp=1, pp=stages, phase="decode", context=TOKENS // 2, techniques=techniques
    )
    return found.time_s.value / MILLI


def _memory() -> Iterator[Ours]:
    chip = "A100-SXM-80GB"
    parts = _fit(chip, 1, THREE).parts
    cache_bytes = gnomon.predict(
        _model(), on=f"{chip}:5", tp=1, pp=5, phase="decode", context=LONGEST - 1, batch=1
    ).memory_parts["kv"]
    yield "weights in three bits", parts["weights"] / GIB
    yield "cache of 2,048 tokens", cache_bytes / GIB
    yield "four bits fit one A100-80GB (1 for yes)", float(_fit(chip, 1, FOUR).fits)


def _times() -> Iterator[Ours]:
    for chip, (wide, narrow) in CARDS.items():
        ours = _token_ms(chip, wide, ()), _token_ms(chip, narrow, THREE)
        yield f"{chip}, three bits: sooner by", ours[0] / ours[1]
        yield f"{chip}, 16 bits on {wide}: a token", ours[0]
        yield f"{chip}, three bits on {narrow}: a token", ours[1]
        for words, techniques in (("16", ()), ("three", THREE)):
            yield f"{chip}: GPUs in {words} bits", _fewest(chip, techniques)


def figures() -> Iterator[Ours]:
    yield from _times()
    yield from _memory()
