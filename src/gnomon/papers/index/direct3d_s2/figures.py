"""Direct3D-S2 (Wu et al. 2025): attention over a surface's voxels, full, and over blocks compressed and chosen."""

from __future__ import annotations

from collections.abc import Iterator

import gnomon
from gnomon.papers.base import Ours

ON, TOKENS = "A100-SXM-80GB", 128_000
HEADS, KV_HEADS, HEAD = 32, 2, 64
COMPRESSED, BLOCK, CHOSEN = 16, 64, 8
"""Tokens of a compressed block, of a block that is chosen or a window, and blocks chosen."""


def _us(phase: str, sequences: int, queries: int, keys: int) -> float:
    sizes = {"batch": sequences, "heads": HEADS, "kv_heads": KV_HEADS, "q_len": queries, "kv_len": keys}
    row = {"op": f"attention_{phase}", "dtype": "bf16", "head_dim": HEAD, "causal": 0} | sizes
    return float(gnomon.ops([row], on=ON)[0]["time_us"])


def _gain(phase: str) -> float:
    """Full attention over its three branches. Queries of a block share what was chosen for it."""
    blocks = TOKENS // BLOCK
    branches = (
        _compressed(phase),
        _us(phase, blocks, BLOCK, CHOSEN * BLOCK),
        _us(phase, blocks, BLOCK, BLOCK),
    )
    return _us(phase, 1, TOKENS, TOKENS) / sum(branches)


def _compressed(phase: str) -> float:
    """All queries over a sixteenth of the keys: as many sequences as keys are fewer, each as long as these."""
    return _us(phase, COMPRESSED, TOKENS // COMPRESSED, TOKENS // COMPRESSED)


def figures() -> Iterator[Ours]:
    for phase in ("forward", "backward"):
        gain = _gain(phase)
        for version in ("1.0", "1.1"):
            yield f"{phase}, version {version}: sooner by", gain
