"""Attention over cached latents (MLA), and the choice of tokens before it.

One latent serves all heads, so few sequences read it at memory speed and many heads multiply with it at the
arithmetic's: both are priced, and the slower counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.cost.flash import in_turn
from gnomon.cost.residual import Axis
from gnomon.graph.dtypes import width
from gnomon.graph.mixer_ops import index_bytes, latent_bytes, latent_flops
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

HEAD_TILE = 64
"""Query heads a thread block takes; fewer are padded to it."""
KEY_TILE = 64

COEFFICIENTS = {
    "rate": (0.7, 0.05, 1.0),
    "memory": (0.95, 0.1, 1.0),
    "launch_us": (9.0, 0.5, 60.0),
    "overlap": (4.0, 1.0, 8.0),
    "block_us": (1.0, 0.0, 20.0),
    "key_tile_us": (1.0, 0.0, 10.0),
    "split": (0.9, 0.0, 1.0),
    "combine_us": (2.0, 0.0, 12.0),
    "part_ps": (2.0, 0.0, 4.0),
    "row_ns": (20.0, 0.0, 100.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says: `split` how far a kernel splits a
long cache over idle processors, `row_ns` what a sequence takes beside. The start is near what fits the shapes published
for FlashAttention-3 on an H100 (AIConfigurator 0.12, SGLang 0.5.14)."""

AXES = (
    Axis("sequences", lambda s: s["sequences"], 0.0, 10.0, 6),
    Axis("length", lambda s: s["context"] / s["sequences"], 0.0, 17.0, 7),
    Axis("heads", lambda s: s["heads"], 0.0, 7.0, 4),
)
"""Sizes over which the residual of the formula may be fitted."""

BACKWARD = {
    "rate": (0.12, 0.02, 1.0),
    "memory": (0.7, 0.2, 1.0),
    "launch_us": (30.0, 1.0, 200.0),
    "overlap": (2.0, 1.0, 8.0),
}
"""Ranges of the coefficients of the gradient over chosen tokens. The rate is that of TileLang's kernel, which its
authors call naive: about 115 TFLOP/s on an H200 (tilelang, examples/deepseek_v32); three small kernels stand beside."""
BACKWARD_SPREAD = 0.7
"""(log) Its forward reaches five times that rate, and so may other gradients."""

INDEX = {
    "rate": (0.5, 0.05, 1.0),
    "memory": (0.7, 0.2, 1.0),
    "launch_us": (15.0, 1.0, 80.0),
    "overlap": (1.5, 1.0, 8.0),
}
"""Ranges of the coefficients of index scores: one kernel multiplies, one selects."""


def seconds(shape: Shape, kv_dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """`context` is the sum over the sequences of the latents each reads, `pairs` of those its tokens attend to, where
    these are more."""
    sequences, context, heads = shape["sequences"], shape["context"], shape["heads"]
    pairs = shape.get("pairs", context)
    channels = 2.0 * shape["kv_rank"] + shape["rope_dim"]
    some = sequences > 0
    n = np.where(some, sequences, 1.0)
    tiles = np.ceil(heads / HEAD_TILE)
    read = context * (shape["kv_rank"] + shape["rope_dim"]) * width(kv_dtype) + 2.0 * n * heads * channels
    streamed = read / (chip.memory_bandwidth_bytes_s * c["memory"])
    multiplied = 2.0 * pairs * tiles * HEAD_TILE * channels / (chip.half_rate("bf16") * c["rate"])
    key_tiles, blocks = np.maximum(np.ceil(pairs / n / KEY_TILE), 1.0), n * tiles
    steps, parts = in_turn(((1.0, blocks),), key_tiles, key_tiles, chip.sm_count, c["split"])
    waves = np.maximum(blocks * parts / chip.sm_count, 1.0)
    serial = (waves * c["block_us"] + steps * c["key_tile_us"]) * 1e-6
    p = c["overlap"]
    body = (streamed**p + multiplied**p + serial**p) ** (1 / p)
    summed = c["combine_us"] + n * heads * shape["kv_rank"] * parts * c["part_ps"] * 1e-6
    beside = c["launch_us"] + np.where(parts > 1, summed, 0.0) + n * c["row_ns"] * 1e-3
    return np.where(some, body + beside * 1e-6, 0.0)


def backward_seconds(shape: Shape, kv_dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Gradients of queries and latents, the latter added up by atomic operations."""
    multiplied = latent_flops("mla_backward", shape) / (chip.half_rate("bf16") * c["rate"])
    moved = latent_bytes("mla_backward", kv_dtype, shape)
    streamed = moved / (chip.memory_bandwidth_bytes_s * c["memory"])
    p = c["overlap"]
    body = (multiplied**p + streamed**p) ** (1 / p)
    return np.where(shape["sequences"] > 0, body + c["launch_us"] * 1e-6, 0.0)


def index_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Index scores with eight-bit matmuls where the chip has them."""
    flops = 2.0 * shape["pairs"] * shape["heads"] * shape["head_dim"]
    rate = chip.rate(dtype if dtype in chip.rates_flops else chip.half)
    streamed = index_bytes(shape, dtype) / (chip.memory_bandwidth_bytes_s * c["memory"])
    p = c["overlap"]
    body = ((flops / (rate * c["rate"])) ** p + streamed**p) ** (1 / p)
    return np.where(shape["tokens"] > 0, body + c["launch_us"] * 1e-6, 0.0)
