"""How FlashAttention-3 cuts attention: tiles of queries and keys, and parts of a cache for processors left idle.

A part more may start another wave, and a sequence more may leave it out, so that more work is sometimes faster: by as
much as a half on an H200, as measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

import numpy as np

from gnomon.spec.workload import Floats

MOST_SPLITS = 32
"""Parts of a cache at most: what vLLM allows under CUDA graphs."""
SLACK = 1.1
"""How much more than its share of all tiles a processor may have: parts are as many as that leaves."""
ROUNDING = 1e-9
NARROW = 64
"""The widest head whose tiles have more queries."""

Cut = tuple[float, Floats]
"""A share of a blend, and the thread blocks there are without parts."""


def query_tile(head_dim: Floats) -> Floats:
    """Rows of queries that a thread block takes."""
    return np.where(head_dim <= NARROW, 192.0, 128.0)


def key_tile(head_dim: Floats, width: float) -> Floats:
    """Keys that it meets at a time: fewer of wide heads, more in eight bits."""
    if width < 2:
        return np.where(head_dim <= 192, 160.0, 128.0)
    return np.where(head_dim <= 128, 128.0, np.where(head_dim <= 192, 96.0, 80.0))


def in_turn(cuts: Iterable[Cut], tiles: Floats, cached: Floats, sms: float, split: float) -> tuple[Floats, Floats]:
    """Tiles of keys that the busiest processor meets, one after the other, and parts of a block.

    A block has `tiles`; parts are planned by `cached` ones, those before a window with them. `split` says how far a
    kernel cuts at all.
    """
    steps, parts = np.zeros(1), np.zeros(1)
    for share, blocks in cuts:
        if share > 0:
            each = np.clip(np.ceil(cached / np.ceil(SLACK * blocks * cached / sms)), 1, np.minimum(tiles, MOST_SPLITS))
            met = np.ceil(np.maximum(blocks * each / sms, 1) - ROUNDING) * np.ceil(tiles / each - ROUNDING)
            if split < 1:
                met = met**split * (np.ceil(np.maximum(blocks / sms, 1) - ROUNDING) * tiles) ** (1 - split)
            steps, parts = steps + share * met, parts + share * each**split
    return steps, parts


def one_in_turn(
    cuts: Iterable[tuple[float, float]], tiles: float, cached: float, sms: float, split: float
) -> tuple[float, float]:
    """`in_turn` for one step, in plain floats."""
    steps = parts = 0.0
    for share, blocks in cuts:
        if share > 0:
            each = min(max(ceil(cached / ceil(SLACK * blocks * cached / sms)), 1), tiles, MOST_SPLITS)
            met = ceil(max(blocks * each / sms, 1) - ROUNDING) * ceil(tiles / each - ROUNDING)
            if split < 1:
                met = met**split * (ceil(max(blocks / sms, 1) - ROUNDING) * tiles) ** (1 - split)
            steps, parts = steps + share * met, parts + share * each**split
    return steps, parts
