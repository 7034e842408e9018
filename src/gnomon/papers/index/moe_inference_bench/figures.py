"""MoE-Inference-Bench (Chitty-Venkata et al. 2025): what formats and active experts do to throughput under vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import gnomon
from gnomon.load import model as load_model
from gnomon.papers.base import Ours
from gnomon.spec import Model, MoeFfn

MIXTRAL, DEEPSEEK, QWEN = "mixtral-8x7b", "deepseek-v2-lite", "qwen1.5-moe-a2.7b"
TOKENS = 512
"""In, and as many out."""
SMALL, MIDDLE, LARGE = 1, 16, 64
FEW, MANY = 1, 32


@cache
def _with(name: str, topk: int) -> Model:
    """The network with other active experts."""
    model = load_model(name)
    blocks = tuple(
        replace(block, ffn=replace(block.ffn, topk=topk)) if isinstance(block.ffn, MoeFfn) else block
        for block in model.blocks
    )
    return replace(model, blocks=blocks)


def _tokens_s(model: str | Model, gpus: int, batch: int, **how: Any) -> float:
    """All tokens over the time of a prefill and of the decodes at the mean context."""
    on = f"H100:{gpus}"
    prefill = gnomon.predict(model, on=on, phase="prefill", batch=batch, tokens=TOKENS, **how).time_s.value
    decode = gnomon.predict(model, on=on, phase="decode", batch=batch, context=TOKENS * 3 // 2, **how).time_s.value
    return 2 * TOKENS * batch / float(prefill + TOKENS * decode)


def figures() -> Iterator[Ours]:
    for batch in (MIDDLE, LARGE):
        wide, narrow = (_tokens_s(MIXTRAL, 2, batch, dtype=dtype) for dtype in ("bf16", "fp8"))
        yield f"Mixtral-8x7B, FP8 over FP16, batch {batch}", narrow / wide
    one, all_of_them = (_tokens_s(_with(MIXTRAL, topk), 2, LARGE) for topk in (1, 8))
    yield "Mixtral-8x7B, one expert over eight, batch 64", one / all_of_them
    for name, title in ((DEEPSEEK, "DeepSeek-V2-Lite"), (QWEN, "Qwen1.5-MoE")):
        for batch in (LARGE, SMALL):
            few, many = (_tokens_s(_with(name, topk), 1, batch) for topk in (FEW, MANY))
            yield f"{title}, 32 experts over one, batch {batch}", many / few
