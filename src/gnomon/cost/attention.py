"""Attention over a paged cache: prompts bound by arithmetic, decodes by reading the cache.

A batch is known by its sums, so sequences of one step are taken as equal; their mean length decides the occupancy
of the chip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil

import numpy as np

from gnomon.cost.flash import ROUNDING, in_turn, key_tile, one_in_turn, query_tile
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
MOST_GROUPED = 32
"""Query heads of a group that TensorRT-LLM's kernels take together at most."""
MOST_THREADS = 512
"""Threads that vLLM gives a token at most when it writes its key and value, one for each number of a key: an H200 holds
fewer tokens at a time then, and takes 1.2, 3.0, 6.5 and 6.4 ns per token of 128, 256, 512 and 1,024 numbers in fp8."""
HEAD_STEP = 64

DECODE = {
    "memory": (0.93, 0.1, 1.0),
    "launch_us": (8.0, 0.5, 150.0),
    "overlap": (5.0, 1.0, 8.0),
    "block_us": (1.0, 0.0, 10.0),
    "turn_us": (0.5, 0.0, 10.0),
    "key_tile_us": (1.2, 0.0, 5.0),
    "tile_us": (0.2, 0.0, 3.0),
    "wide": (1.0, 0.5, 3.0),
    "split": (1.0, 0.0, 1.0),
    "combine_us": (1.0, 0.0, 10.0),
    "part_ps": (2.0, 0.0, 4.0),
    "pack": (1.0, 0.0, 1.0),
    "edge": (0.5, 0.0, 4.0),
    "masked": (1.2, 1.0, 3.0),
    "window_us": (1.0, 0.0, 10.0),
    "row_ns": (1.0, 0.0, 50.0),
    "lone_us": (0.0, 0.0, 5.0),
    "lone_ps": (0.0, 0.0, 200.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says. Of a block, `block_us` overlaps with
reading and `turn_us` does not. A tile of keys takes `tile_us`, and `key_tile_us` at 128 keys of 128 numbers, which
grows with them by the power `wide`. `split` and `pack` say how far a kernel splits a long cache over idle processors,
and has the heads of a group share what is read; `combine_us` and `part_ps`, of a number, what summing up takes. A
window makes tiles `masked` times slower and is planned for `window_us`; `edge` tiles are read before it. `row_ns` is
what a sequence takes beside. A group of more heads than `MOST_GROUPED` is left to a kernel for lone heads where a
library has no other: `lone_us` of a head, `lone_ps` of each number it reads."""

BACKWARD = {
    "rate": (0.5, 0.1, 1.0),
    "exp_ps": (20.0, 0.0, 200.0),
    "memory": (0.8, 0.2, 1.0),
    "launch_us": (12.0, 0.5, 60.0),
    "overlap": (2.5, 1.0, 12.0),
    "diagonal": (0.5, 0.0, 3.0),
}
"""Ranges of the coefficients of the backward pass over whole sequences."""

FORWARD = {
    "rate": (0.8, 0.2, 1.0),
    "exp_ps": (20.0, 0.0, 200.0),
    "memory": (0.8, 0.3, 1.0),
    "launch_us": (5.0, 0.5, 20.0),
    "overlap": (2.5, 1.0, 12.0),
    "block_us": (1.0, 0.0, 10.0),
    "diagonal": (0.5, 0.0, 3.0),
    "combine_us": (3.0, 0.0, 12.0),
}
"""Ranges of the coefficients of whole sequences, whose keys and values are not written to a cache."""

WHOLE = {"mix": 1.0, "split": 1.0, "pack": 0.0, "masked": 1.0} | dict.fromkeys(
    ("waves", "wide", "fill_us", "part_ps", "store", "token_ns"), 0.0
)
"""The other coefficients of prefills, for whole sequences without a cache."""

PREFILL = FORWARD | {
    "rate": (0.8, 0.05, 1.0),
    "mix": (1.3, 1.0, 4.0),
    "memory": (0.8, 0.2, 1.0),
    "launch_us": (8.0, 0.5, 150.0),
    "overlap": (1.5, 1.0, 12.0),
    "split": (1.0, 0.0, 1.0),
    "pack": (1.0, 0.0, 1.0),
    "edge": (0.5, 0.0, 8.0),
    "masked": (1.1, 1.0, 3.0),
    "wide": (0.1, 0.0, 2.0),
    "waves": (0.8, 0.0, 1.0),
    "fill_us": (1.0, 0.0, 20.0),
    "part_ps": (2.0, 0.0, 4.0),
    "store": (1.0, 0.0, 6.0),
    "token_ns": (0.5, 0.0, 10.0),
}
"""Ranges of the coefficients of prefills over a paged cache. `mix` says how well exponentials overlap with the matmuls
(1: not at all),
`diagonal` and `edge` how many tiles the masks of causality and of a window cost each tile of queries, `waves` how far
equally long tiles wait for the last wave, `fill_us` what loading and storing a full tile of queries takes, `wide`
how pairs slow down with heads beyond 128, `store` and `token_ns` what writing the new keys and values takes: times
what memory would, and of a token for every 128 threads. The others are those of decodes."""

DECODE_AXES = (
    Axis("blocks", lambda s: s["sequences"] * s["kv_heads"], 0.0, 14.0, 7),
    Axis("length", lambda s: s["context"] / s["sequences"], 0.0, 18.0, 8),
    Axis("head_dim", lambda s: s["head_dim"], 6.0, 9.0, 4),
)
PREFILL_AXES = (
    Axis("queries", lambda s: s["tokens"] / s["sequences"], 4.0, 14.0, 6),
    Axis("heads", lambda s: s["heads"] * s["sequences"], 0.0, 14.0, 6),
    Axis("head_dim", lambda s: s["head_dim"], 6.0, 9.0, 4),
)
"""Sizes over which the residual of these formulas may be fitted."""


def decode_seconds(shape: Shape, kv_dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """`context` is the sum over the sequences of the cached tokens each attends to, `beyond` of those outside its
    window. A window begins inside a tile, whose other tokens are read too."""
    sequences, context, beyond = shape["sequences"], shape["context"], shape.get("beyond", np.zeros(1))
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], shape["head_dim"]
    some, masked = sequences > 0, beyond > 0
    n, group = np.where(some, sequences, 1.0), heads / kv_heads
    keys = key_tile(head_dim, width(kv_dtype))
    everything, context = context + beyond, context + np.minimum(beyond, c["edge"] * n * keys)
    mean = context / n
    channels = head_dim + shape.get("value_dim", head_dim)
    read = context * kv_heads * channels * width(kv_dtype) + 2.0 * n * heads * channels
    streamed = read / (chip.memory_bandwidth_bytes_s * c["memory"])
    together = n * kv_heads * np.ceil(group / query_tile(head_dim))
    cuts = ((c["pack"], together), (1 - c["pack"], n * heads))
    tiles, cached = (np.maximum(np.ceil(each / n / keys), 1.0) for each in (context, everything))
    steps, parts = in_turn(cuts, tiles, cached, chip.sm_count, c["split"])
    waves = np.maximum(sum(share * blocks for share, blocks in cuts) * parts / chip.sm_count, 1.0)
    tile = (c["tile_us"] + c["key_tile_us"] * (keys * head_dim / KEY_TILE**2) ** c["wide"]) * 1e-6
    serial = steps * tile * np.where(masked, c["masked"], 1.0) + waves * c["block_us"] * 1e-6
    p = c["overlap"]
    body = (streamed**p + serial**p) ** (1 / p) + waves * c["turn_us"] * 1e-6
    body = np.maximum(body, 4.0 * context * heads * head_dim / chip.half_rate(kv_dtype))  # many heads or new tokens
    alone = n * heads / chip.sm_count * (c["lone_us"] * 1e-6 + mean * channels * c["lone_ps"] * 1e-12)
    summed = c["combine_us"] * 1e-6 + n * heads * head_dim * parts * c["part_ps"] * 1e-12
    beside = np.where(parts > 1, summed, 0.0) + n * c["row_ns"] * 1e-9 + np.where(masked, c["window_us"] * 1e-6, 0.0)
    return np.where(some, body + np.where(group > MOST_GROUPED, alone, 0.0) + beside + c["launch_us"] * 1e-6, 0.0)


def prefill_seconds(shape: Shape, kv_dtype: str, chip: Chip, c: Mapping[str, float], dtype: str = "bf16") -> Floats:
    """Sums over the prompt chunks: new tokens, query-key pairs, cached tokens read (the new included).

    A tile of queries is of one head, or of all heads of a group, whose rows are fewer tokens then (`pack`). It meets no
    more keys than the `window` before its first one and its own. Pairs outside the window are `beyond`, along an edge
    like the causal one; parts are planned by all cached tokens, those with them that no query sees. Scores take as many
    special functions as they are bent (`bends`). Tiles over a long cache take equally long, and wait for the last wave;
    those of a whole prompt do not, and fill it up (`alike`). Keys and values are `written` to the cache, but for those
    unfolded from latents.
    """
    sequences, tokens, pairs, context = (shape[name] for name in ("sequences", "tokens", "pairs", "context"))
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], shape["head_dim"]
    channels, window = head_dim + shape.get("value_dim", head_dim), shape.get("window", np.inf)
    beyond = shape.get("beyond", np.zeros(1))
    some, masked, sms = sequences > 0, beyond > 0, chip.sm_count
    n, group = np.where(some, sequences, 1.0), heads / kv_heads
    q, mean = np.maximum(tokens / n, 1.0), context / n
    pack, split = c["pack"], c["split"]
    rows, keys = shape.get("rows", query_tile(head_dim)), key_tile(head_dim, width(kv_dtype))
    area = rows * keys
    apart = "query_blocks" in shape  # documents of unequal length, which do not share tiles
    together = np.ceil(q * group / rows) / group
    lone = shape["query_blocks"] * QUERY_TILE / rows / n if apart else np.ceil(q / rows)
    tiles = pack * together + (1 - pack) * lone
    reached = shape["longest_keys"] if apart else mean
    key_tiles = np.maximum(np.ceil(np.minimum(reached, window + rows / (1 + pack * (group - 1)) - 1) / keys), 1.0)
    hidden = np.minimum(beyond / n / q, np.maximum((pairs + beyond) / n / q + (q - 1) / 2 - mean, 0.0))
    cached = np.maximum(np.ceil((reached + hidden) / keys - ROUNDING), 1.0)
    cuts = ((pack, n * heads * together), (1 - pack, n * heads * lone))
    steps, parts = in_turn(cuts, key_tiles, cached, sms, split)
    on_one_sm = _rate(chip, dtype) / sms * c["rate"]
    m = c["mix"]
    bent = shape.get("bends", 1.0) * c["exp_ps"] * 1e-12
    per_tile = area * ((2.0 * channels / on_one_sm) ** m + bent**m) ** (1 / m) * np.where(masked, c["masked"], 1.0)
    per_tile = per_tile * np.maximum(head_dim / KEY_TILE, 1.0) ** c["wide"]
    idle = (tiles - q / rows) * np.maximum(np.ceil(np.minimum(mean, window) / keys), 1.0)
    idle = shape["empty_blocks"] * KEY_TILE / keys / n if apart else idle
    met = np.maximum(pairs / n, 1.0) / area + idle + c["diagonal"] * tiles
    met = met + np.minimum(c["edge"] * tiles, beyond / n / area)
    block, blocks = c["block_us"] * 1e-6, n * heads * tiles
    work = n * heads * met * per_tile + parts * (blocks * block + tokens * heads / rows * c["fill_us"] * 1e-6)
    share, longest = work / sms, np.maximum(key_tiles / parts, 1.0) * per_tile + block
    alike = np.clip(2 * met / (tiles * key_tiles) - 1, 0.0, 1.0)
    uneven = np.maximum(steps * sms / (blocks * key_tiles), 1.0) - 1
    busy = share * (1 + np.where(blocks * parts > sms, c["waves"] * alike, 0.0) * uneven)
    memory = chip.memory_bandwidth_bytes_s * c["memory"]
    streamed = (context * kv_heads * channels * width(kv_dtype) + 2.0 * tokens * heads * channels) / memory
    stored = c["store"] * kv_heads * channels * (2.0 + width(kv_dtype)) / memory
    stored = stored + c["token_ns"] * 1e-9 * np.minimum(kv_heads * head_dim, MOST_THREADS) / 128
    stored = stored * shape.get("written", 1.0)
    p = c["overlap"]
    body = (busy**p + longest**p + streamed**p) ** (1 / p)
    summed = c["combine_us"] * 1e-6 + tokens * heads * head_dim * parts * c["part_ps"] * 1e-12
    return np.where(some, body + tokens * stored + c["launch_us"] * 1e-6 + np.where(parts > 1, summed, 0.0), 0.0)


def forward_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Whole sequences, as a training framework's kernels take them: heads are padded to a multiple of 64."""
    launch = c["launch_us"] * 1e-6
    padded = _padded(shape)
    tiled = {"head_dim": padded, "value_dim": padded, "rows": np.full(1, float(QUERY_TILE))}
    known = WHOLE | {"edge": c["diagonal"], **c}
    took = prefill_seconds(shape | tiled, dtype, chip, known, dtype)
    return _at_efficiency(took, launch, shape)


def _rate(chip: Chip, dtype: str) -> float:
    """Narrow formats are dequantized before the matmul; older chips do so to fp16."""
    return chip.half_rate(dtype) if width(dtype) <= 2 else chip.rate(dtype)


def _at_efficiency(took: Floats, launch: float, shape: Shape) -> Floats:
    """Seconds of a kernel slower than FlashAttention's."""
    if "efficiency" not in shape:
        return took
    return np.where(took > 0, (took - launch) / shape["efficiency"] + launch, 0.0)


def _padded(shape: Shape) -> Floats:
    return np.asarray(np.ceil(shape["head_dim"] / HEAD_STEP) * HEAD_STEP)


def backward_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Five matmuls over the pairs, one thread block per tile of keys, over all queries; two small kernels besides."""
    sequences, tokens, pairs, context = (shape[name] for name in ("sequences", "tokens", "pairs", "context"))
    heads, kv_heads, head_dim = shape["heads"], shape["kv_heads"], _padded(shape)
    some = sequences > 0
    n = np.where(some, sequences, 1.0)
    tiles, query_tiles = (np.ceil(np.maximum(x / n, 1.0) / KEY_TILE) for x in (context, tokens))
    if "key_blocks" in shape:  # documents of unequal length: thread blocks of each, and the longest to wait for
        tiles, query_tiles = shape["key_blocks"] / n, np.ceil(shape["longest_queries"] / QUERY_TILE)
    on_one_sm = _rate(chip, dtype) / chip.sm_count * c["rate"]
    bent = shape.get("bends", 1.0) * c["exp_ps"] * 1e-12
    per_tile = QUERY_TILE * KEY_TILE * (10.0 * head_dim / on_one_sm + bent)
    seen = np.maximum(pairs / n, 1.0) / (QUERY_TILE * KEY_TILE)
    work = n * heads * (seen + c["diagonal"] * tiles) * per_tile / chip.sm_count
    longest = np.minimum(query_tiles, np.ceil((shape.get("window", np.inf) + QUERY_TILE - 1) / QUERY_TILE)) * per_tile
    values = 4.0 * (tokens * heads + context * kv_heads) * head_dim * width(dtype) + 8.0 * tokens * heads * head_dim
    streamed = values / (chip.memory_bandwidth_bytes_s * c["memory"])
    p = c["overlap"]
    body = (work**p + longest**p) ** (1 / p) + streamed
    launch = c["launch_us"] * 1e-6
    return _at_efficiency(np.where(some, body + launch, 0.0), launch, shape)


def scalar_prefill(op: Attention, chip: Chip, c: Mapping[str, float]) -> ScalarPrefill:
    """`prefill_seconds` for one step at a time, in plain floats, with the pairs and the context that the operator's
    window leaves, and the pairs beyond it."""
    heads, sms, p, m, pack, split = op.heads, chip.sm_count, c["overlap"], c["mix"], c["pack"], c["split"]
    group, rows = heads / op.kv_heads, float(query_tile(np.array(op.head_dim)))
    on_one_sm = chip.half_rate(op.kv_dtype) / sms * c["rate"]
    channels, bent = op.head_dim + op.values, (1 + op.capped) * c["exp_ps"] * 1e-12
    per_pair = ((2.0 * channels / on_one_sm) ** m + bent**m) ** (1 / m) * max(op.head_dim / KEY_TILE, 1.0) ** c["wide"]
    memory = chip.memory_bandwidth_bytes_s * c["memory"]
    wide = op.kv_heads * channels
    per_context = wide * width(op.kv_dtype) / memory
    per_token = 2.0 * heads * channels / memory
    stored = c["store"] * wide * (2.0 + width(op.kv_dtype)) / memory
    stored += c["token_ns"] * 1e-9 * min(op.kv_heads * op.head_dim, MOST_THREADS) / 128
    stored = stored if op.value_dim is None else 0.0
    span = float("inf") if op.window is None else op.window.length
    most = span + rows / (1 + pack * (group - 1)) - 1
    launch, block, combine = c["launch_us"] * 1e-6, c["block_us"] * 1e-6, c["combine_us"] * 1e-6
    fill, part = heads / rows * c["fill_us"] * 1e-6, heads * op.head_dim * c["part_ps"] * 1e-12
    diagonal, edge, inverse, alone, waves = c["diagonal"], c["edge"], 1 / p, 1 - pack, c["waves"]
    keys = float(key_tile(np.array(op.head_dim), width(op.kv_dtype)))
    area = rows * keys
    per_tiles = area * per_pair, area * per_pair * c["masked"]

    def seconds(n: float, tokens: float, pairs: float, context: float, beyond: float = 0.0) -> float:
        q, mean = tokens / n, context / n
        per_tile = per_tiles[beyond > 0]
        together, lone = ceil(q * group / rows) / group, ceil(q / rows)
        tiles = pack * together + alone * lone
        blocks = n * heads * tiles
        key_tiles = ceil(min(mean, most) / keys)
        hidden = min(beyond / tokens, max((pairs + beyond) / tokens + (q - 1) / 2 - mean, 0.0))
        cached = ceil((mean + hidden) / keys - ROUNDING)
        cuts = ((pack, n * heads * together), (alone, n * heads * lone))
        steps, parts = one_in_turn(cuts, key_tiles, cached, sms, split)
        met = pairs / n / area + (tiles - q / rows) * ceil(min(mean, span) / keys) + diagonal * tiles
        if beyond > 0:
            met += min(edge * tiles, beyond / n / area)
        work = n * heads * met * per_tile + parts * (blocks * block + tokens * fill)
        busy, longest = work / sms, max(key_tiles / parts, 1.0) * per_tile + block
        if blocks * parts > sms:
            alike = min(max(2 * met / (tiles * key_tiles) - 1, 0.0), 1.0)
            busy *= 1 + waves * alike * (max(steps * sms / (blocks * key_tiles), 1.0) - 1)
        streamed = context * per_context + tokens * per_token
        body = (busy**p + longest**p + streamed**p) ** inverse
        return float(body + tokens * stored + launch + (combine + tokens * part * parts if parts > 1 else 0.0))

    return seconds
