"""Attention over a paged cache: prompts bound by arithmetic, decodes by reading the cache.

A batch is known by its sums, so sequences of one step are taken as alike; their mean length decides how well
the chip is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

import numpy as np

from gnomon.cost.residual import Axis
from gnomon.graph.dtypes import width
from gnomon.graph.ops import Attention, Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

ScalarPrefill = Callable[..., float]
"""(chunks, tokens, pairs, context, pairs beyond the window) to seconds."""
QUERY_TILE = 128
"""Query rows a thread block of FlashAttention-3 takes at head dimension 128."""
KEY_TILE = 128
HEAD_STEP = 64

DECODE = {
    "memory": (0.8, 0.3, 1.0),
    "launch_us": (4.0, 0.5, 20.0),
    "overlap": (1.5, 1.0, 8.0),
    "block_us": (1.0, 0.0, 10.0),
    "key_tile_us": (0.3, 0.0, 3.0),
    "combine_us": (2.0, 0.0, 10.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says."""

BACKWARD = {
    "rate": (0.5, 0.1, 1.0),
    "exp_ps": (20.0, 0.0, 200.0),
    "memory": (0.8, 0.2, 1.0),
    "launch_us": (12.0, 0.5, 60.0),
    "overlap": (2.5, 1.0, 12.0),
    "diagonal": (0.5, 0.0, 3.0),
}
"""The same for the gradients of whole sequences."""

PREFILL = {
    "rate": (0.8, 0.2, 1.0),
    "exp_ps": (20.0, 0.0, 200.0),
    "memory": (0.8, 0.3, 1.0),
    "launch_us": (5.0, 0.5, 20.0),
    "overlap": (2.5, 1.0, 12.0),
    "block_us": (1.0, 0.0, 10.0),
    "diagonal": (0.5, 0.0, 3.0),
    "combine_us": (3.0, 0.0, 12.0),
}
"""The same for prompts."""


DECODE_AXES = (
    Axis("blocks", lambda s: s["sequences"] * s["kv_heads"], 0.0, 14.0, 7),
    Axis("length", lambda s: s["context"] / s["sequences"], 0.0, 18.0, 8),
    Axis("group", lambda s: s["heads"] / s["kv_heads"], 0.0, 6.0, 4),
)
PREFILL_AXES = (
    Axis("blocks", lambda s: s["tokens"] * s["heads"], 4.0, 22.0, 7),
    Axis("length", lambda s: s["context"] / s["sequences"], 4.0, 18.0, 7),
)
"""Sizes over which a fit may learn what these leave over."""


def decode_seconds(shape: Shape, kv_dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """`context` is the sum over the sequences of the cached tokens each looks at, `beyond` of those that its window
    hides. A window begins inside a tile, whose other tokens are read too."""
    sequences, context = shape["sequences"], shape["context"]
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], shape["head_dim"]
    some = sequences > 0
    n = np.where(some, sequences, 1.0)
    context = context + np.minimum(shape.get("beyond", 0.0), n * KEY_TILE)
    mean = context / n
    channels = head_dim + shape.get("value_dim", head_dim)
    read = context * kv_heads * channels * width(kv_dtype) + 2.0 * n * heads * channels
    streamed = read / (chip.memory_bandwidth_bytes_s * c["memory"])
    blocks = n * kv_heads
    key_tiles = np.maximum(mean / KEY_TILE, 1.0)
    splits = np.clip(np.floor(chip.sm_count / blocks), 1, np.minimum(key_tiles, 32))
    waves = np.maximum(blocks * splits / chip.sm_count, 1.0)
    serial = waves * (c["block_us"] + key_tiles / splits * c["key_tile_us"] * head_dim / 128) * 1e-6
    p = c["overlap"]
    body = (streamed**p + serial**p) ** (1 / p)
    body = np.maximum(body, 4.0 * context * heads * head_dim / chip.half_rate(kv_dtype))  # many heads or new tokens
    combine = np.where(splits > 1, c["combine_us"] * 1e-6, 0.0)
    return np.where(some, body + combine + c["launch_us"] * 1e-6, 0.0)


def prefill_seconds(shape: Shape, kv_dtype: str, chip: Chip, c: Mapping[str, float], dtype: str = "bf16") -> Floats:
    """Sums over the prompt chunks: new tokens, query-key pairs, cached tokens read (the new included).

    A tile of queries meets no more keys than the `window` before its first one and its own. What the window hides are
    `beyond` pairs, along an edge like the causal one. Scores take as many special functions as they are bent (`bends`).
    """
    sequences, tokens, pairs, context = (shape[name] for name in ("sequences", "tokens", "pairs", "context"))
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], shape["head_dim"]
    channels = head_dim + shape.get("value_dim", head_dim)
    some = sequences > 0
    n = np.where(some, sequences, 1.0)
    q, mean = np.maximum(tokens / n, 1.0), context / n
    tiles = np.ceil(q / QUERY_TILE)
    blocks = n * heads * tiles
    reach = np.minimum(mean, shape.get("window", np.inf) + QUERY_TILE - 1)
    key_tiles = np.maximum(np.ceil(reach / KEY_TILE), 1.0)
    on_one_sm = _rate(chip, dtype) / chip.sm_count * c["rate"]
    bent = shape.get("bends", 1.0) * c["exp_ps"] * 1e-12
    per_tile = QUERY_TILE * KEY_TILE * (2.0 * channels / on_one_sm + bent)
    seen = np.maximum(pairs / n, 1.0) / (QUERY_TILE * KEY_TILE)
    idle_rows = (tiles * QUERY_TILE - q) / QUERY_TILE
    idle = idle_rows * np.maximum(np.ceil(np.minimum(mean, shape.get("window", np.inf)) / KEY_TILE), 1.0)
    hidden = shape.get("beyond", np.zeros(1)) / n / (QUERY_TILE * KEY_TILE)
    edge = np.minimum(c["diagonal"] * tiles, hidden)
    met = np.where(hidden > 0, np.minimum(seen + edge + idle, tiles * key_tiles), seen + idle)
    work = n * heads * (met + c["diagonal"] * tiles) * per_tile
    splits = np.clip(np.floor(chip.sm_count / blocks), 1, key_tiles)
    longest = np.ceil(key_tiles / splits) * per_tile
    waves = np.maximum(blocks / chip.sm_count, 1.0)
    read = context * kv_heads * channels * width(kv_dtype) + 2.0 * tokens * heads * channels
    streamed = read / (chip.memory_bandwidth_bytes_s * c["memory"])
    p = c["overlap"]
    body = ((work / chip.sm_count) ** p + longest**p + streamed**p) ** (1 / p)
    combine = np.where(splits > 1, c["combine_us"], 0.0)
    return np.where(some, body + (c["launch_us"] + c["block_us"] * waves + combine) * 1e-6, 0.0)


def forward_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Whole sequences, as a training framework's kernels take them: heads are padded to a multiple of 64."""
    launch = c["launch_us"] * 1e-6
    padded = _padded(shape)
    took = prefill_seconds(shape | {"head_dim": padded, "value_dim": padded}, dtype, chip, c, dtype)
    return _paced(took, launch, shape)


def _rate(chip: Chip, dtype: str) -> float:
    """Narrow formats are widened before they are multiplied; older chips do so to fp16."""
    return chip.half_rate(dtype) if width(dtype) <= 2 else chip.rate(dtype)


def _paced(took: Floats, launch: float, shape: Shape) -> Floats:
    """What a kernel slower than FlashAttention's takes."""
    if "pace" not in shape:
        return took
    return np.where(took > 0, (took - launch) / shape["pace"] + launch, 0.0)


def _padded(shape: Shape) -> Floats:
    return np.asarray(np.ceil(shape["head_dim"] / HEAD_STEP) * HEAD_STEP)


def backward_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Five products over the pairs, one thread block a tile of keys, over all queries; two small kernels beside."""
    sequences, tokens, pairs, context = (shape[name] for name in ("sequences", "tokens", "pairs", "context"))
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], _padded(shape)
    some = sequences > 0
    n = np.where(some, sequences, 1.0)
    tiles, query_tiles = (np.ceil(np.maximum(x / n, 1.0) / KEY_TILE) for x in (context, tokens))
    on_one_sm = _rate(chip, dtype) / chip.sm_count * c["rate"]
    per_tile = QUERY_TILE * KEY_TILE * (10.0 * head_dim / on_one_sm + c["exp_ps"] * 1e-12)
    seen = np.maximum(pairs / n, 1.0) / (QUERY_TILE * KEY_TILE)
    work = n * heads * (seen + c["diagonal"] * tiles) * per_tile / chip.sm_count
    longest = np.minimum(query_tiles, np.ceil((shape.get("window", np.inf) + QUERY_TILE - 1) / QUERY_TILE)) * per_tile
    values = 4.0 * (tokens * heads + context * kv_heads) * head_dim * width(dtype) + 8.0 * tokens * heads * head_dim
    streamed = values / (chip.memory_bandwidth_bytes_s * c["memory"])
    p = c["overlap"]
    body = (work**p + longest**p) ** (1 / p) + streamed
    launch = c["launch_us"] * 1e-6
    return _paced(np.where(some, body + launch, 0.0), launch, shape)


def scalar_prefill(op: Attention, chip: Chip, c: Mapping[str, float]) -> ScalarPrefill:
    """`prefill_seconds` for one step at a time, in plain floats, with the pairs and the context that the operator's
    window leaves, and the pairs beyond it."""
    heads, sms, p = op.heads, chip.sm_count, c["overlap"]
    on_one_sm = chip.half_rate(op.kv_dtype) / sms * c["rate"]
    channels, bent = op.head_dim + op.values, (1 + op.capped) * c["exp_ps"] * 1e-12
    per_tile = QUERY_TILE * KEY_TILE * (2.0 * channels / on_one_sm + bent)
    per_context = op.kv_heads * channels * width(op.kv_dtype) / (chip.memory_bandwidth_bytes_s * c["memory"])
    per_token = 2.0 * heads * channels / (chip.memory_bandwidth_bytes_s * c["memory"])
    looks = float("inf") if op.window is None else op.window.length
    most = looks + QUERY_TILE - 1
    launch, block, combine = c["launch_us"] * 1e-6, c["block_us"] * 1e-6, c["combine_us"] * 1e-6
    diagonal, inverse = c["diagonal"], 1 / p

    def seconds(n: float, tokens: float, pairs: float, context: float, beyond: float = 0.0) -> float:
        q, mean = tokens / n, context / n
        tiles = ceil(q / QUERY_TILE)
        blocks = n * heads * tiles
        key_tiles = ceil(min(mean, most) / KEY_TILE)
        seen = pairs / n / (QUERY_TILE * KEY_TILE)
        idle_rows = (tiles * QUERY_TILE - q) / QUERY_TILE
        met = seen + idle_rows * ceil(min(mean, looks) / KEY_TILE)
        if beyond > 0:
            met = min(met + min(diagonal * tiles, beyond / n / (QUERY_TILE * KEY_TILE)), tiles * key_tiles)
        work = n * heads * (met + diagonal * tiles) * per_tile / sms
        splits = min(max(sms // blocks, 1), key_tiles)
        longest = ceil(key_tiles / splits) * per_tile
        streamed = context * per_context + tokens * per_token
        body = (work**p + longest**p + streamed**p) ** inverse
        return float(body + launch + block * max(blocks / sms, 1.0) + (combine if splits > 1 else 0.0))

    return seconds
