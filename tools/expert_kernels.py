"""Measures vLLM's Triton experts of further models: in bf16, in eight bits, and chosen unevenly.

python -m tools.expert_kernels experts.csv experts_uneven.csv
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.collect import torch_module
from gnomon.calibrate.timer import time_call
from gnomon.graph.uneven import FEW, MOST_POPULAR
from gnomon.spec.workload import Floats

SIZES = ("tokens", "hidden", "inter", "experts", "topk")
COLUMNS = ("op", "dtype", *SIZES, "kernel", "time_us", "spread")
BESIDE = ("skew", "visited")
TOKENS = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SOME = (1, 16, 64, 256, 1024, 4096, 8192)
MODELS = (
    (4096, 1408, 128, 8), (7168, 256, 256, 8), (2880, 2880, 32, 4), (2048, 1024, 64, 8), (4096, 768, 128, 8),
    (4096, 3200, 16, 2), (2048, 512, 512, 10), (6144, 4096, 8, 2), (2048, 1408, 64, 6),
)  # fmt: skip
"""Hidden and inner width, experts, and how many a token takes: GLM-4.5-Air, DeepSeek-V3 cut in 8, gpt-oss-20b, OLMoE,
Qwen3-235B and Phi-3.5-MoE cut in 2, Qwen3-Next, Mixtral 8x22B cut in 4, DeepSeek-V2-Lite."""
NARROW = {
    "fp8-blocks": ((4096, 1536, 128, 8), (7168, 256, 256, 8), (2048, 768, 128, 8)),
    "fp8": ((4096, 3584, 16, 2), (4096, 1536, 128, 8), (2048, 1024, 64, 8)),
}
UNEVEN = ((2048, 768, 128, 8), (4096, 768, 128, 8))
SKEWS, UNEVEN_TOKENS = (1.01, 1.2), (16, 64, 256, 1024, 4096, 8192)
BLOCK = 128
DRAWS = 8
"""Choices that take turns, so that weights of one call are not those of the last."""

Row = dict[str, Any]


class Experts:
    """One model's weights in a format, and vLLM's call of them."""

    def __init__(self, torch: Any, model: tuple[int, ...], dtype: str) -> None:
        self.torch, self.model, self.dtype = torch, model, dtype
        hidden, inner, experts, _ = model
        sides = ((experts, 2 * inner, hidden), (experts, hidden, inner))
        self.weights = [torch.empty(s, device="cuda", dtype=torch.bfloat16).normal_(0, 0.02) for s in sides]
        self.config = self._narrow() if dtype != "bf16" else {}

    def _narrow(self) -> dict[str, Any]:
        from vllm.model_executor.layers.fused_moe.config import fp8_w8a8_moe_quant_config

        torch, blocks = self.torch, self.dtype == "fp8-blocks"
        sizes = [
            (w.size(0), -(-w.size(1) // BLOCK), -(-w.size(2) // BLOCK)) if blocks else (w.size(0),)
            for w in self.weights
        ]
        scales = [torch.full(size, 0.01, device="cuda") for size in sizes]
        inputs = {} if blocks else {f"a{i}_scale": torch.full((1,), 0.01, device="cuda") for i in (1, 2)}
        shape = {"block_shape": [BLOCK, BLOCK]} if blocks else {}
        self.weights = [weight.to(torch.float8_e4m3fn) for weight in self.weights]
        return {"quant_config": fp8_w8a8_moe_quant_config(w1_scale=scales[0], w2_scale=scales[1], **inputs, **shape)}

    def row(self, tokens: int, chosen: list[Any]) -> Row:
        from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts

        torch, topk = self.torch, self.model[3]
        x = torch.randn(tokens, self.model[0], device="cuda", dtype=torch.bfloat16)
        shares = torch.full((tokens, topk), 1.0 / topk, device="cuda")
        timing = time_call(
            torch, lambda i: fused_experts(x, *self.weights, shares, chosen[i], **self.config), len(chosen)
        )
        sizes = dict(zip(SIZES, (tokens, *self.model), strict=True))
        figures = {"time_us": f"{timing.seconds * 1e6:.5g}", "spread": f"{timing.spread:.4g}"}
        return {"op": "moe", "dtype": self.dtype, "kernel": "triton"} | sizes | figures


def even(torch: Any) -> Iterator[Row]:
    """Tokens that choose at random."""
    plans: list[tuple[tuple[int, ...], str, tuple[int, ...]]] = [(model, "bf16", TOKENS) for model in MODELS]
    plans += [(model, dtype, SOME) for dtype, models in NARROW.items() for model in models]
    for model, dtype, many in plans:
        run, (_, _, experts, topk) = Experts(torch, model, dtype), model
        for tokens in many:
            drawn = [torch.rand(tokens, experts, device="cuda").topk(topk).indices.int() for _ in range(DRAWS)]
            yield run.row(tokens, drawn)


def uneven(torch: Any) -> Iterator[Row]:
    """Experts that are liked by a power law."""
    draw = np.random.default_rng(0)
    for model in UNEVEN:
        run = Experts(torch, model, "bf16")
        for skew in SKEWS:
            for tokens in UNEVEN_TOKENS:
                counts = [drawn_counts(draw, tokens, model[2], model[3], skew) for _ in range(DRAWS)]
                row = run.row(tokens, [torch.from_numpy(choices(c, tokens, model[3])).cuda().int() for c in counts])
                yield row | {"skew": skew, "visited": float(np.mean([(c > 0).sum() for c in counts]))}


def drawn_counts(draw: np.random.Generator, tokens: int, experts: int, topk: int, skew: float) -> Floats:
    """How often each expert is chosen, in one draw of the law of `gnomon.graph.uneven`."""
    low, high = (1.0, MOST_POPULAR * tokens) if tokens * topk > experts else FEW
    power = 1 - skew
    weights = (low**power + draw.random(experts) * (high**power - low**power)) ** (1 / power)
    counts = np.minimum(np.round(weights / weights.sum() * tokens * topk), tokens)
    while counts.sum() < tokens * topk:
        counts[counts.argmin()] += 1
    while counts.sum() > tokens * topk:
        counts[counts.argmax()] -= 1
    return np.asarray(counts, float)


def choices(counts: Floats, tokens: int, topk: int) -> np.ndarray[Any, Any]:
    """Experts of each token, no token taking one twice: dealt out down the columns, the most chosen first."""
    order = np.argsort(-counts)
    return np.repeat(order, counts[order].astype(int)).reshape(topk, tokens).T.copy()


def main(paths: list[str]) -> None:
    torch = torch_module()
    torch.manual_seed(0)
    for path, part, columns in zip(paths, (even, uneven), (COLUMNS, (*COLUMNS, *BESIDE)), strict=False):
        with Path(path).open("w", newline="", buffering=1) as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(part(torch))


if __name__ == "__main__":
    main(sys.argv[1:])
