"""Experts of a mixture: grouped GEMMs over the experts that the tokens visit.

Two tiled GEMMs: rows of an expert are padded to a block, blocks times tiles of columns are shared out to the
processors, and a tile takes its arithmetic and a constant. Beside them the weights of visited experts stream in once.
How many experts are visited and how far blocks fill follows from the routing: uniformly random by default,
equal counts with a `skew` of 0, a power law with more (`gnomon.graph.uneven`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from gnomon.cost.residual import Axis
from gnomon.graph.dtypes import gemm_format
from gnomon.graph.ops import Shape, non_local_bytes
from gnomon.graph.uneven import counts_between, integral, visited_by
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

BLOCKS = (16, 32, 64, 128)
"""Rows a block takes; an expert's tokens are padded to a multiple. The library's tuning picks the best."""
PLAIN = 64
"""Rows of a block where the library is not tuned, once there are more tokens than experts."""
COLUMNS = 128
"""Columns of a tile."""

COEFFICIENTS = {
    "rate": (0.55, 0.05, 1.0),
    "small": (0.3, 0.0, 1.5),
    "tile_us": (0.5, 0.0, 10.0),
    "plain": (0.3, 0.0, 1.0),
    "memory": (0.75, 0.1, 1.0),
    "overlap": (2.0, 1.0, 8.0),
    "launch_us": (15.0, 2.0, 150.0),
    "expert_ns": (5.0, 0.0, 200.0),
    "pair_ns": (2.0, 0.0, 40.0),
    "token_ns": (2.0, 0.0, 80.0),
}
"""Where a fit starts, and the range in which each means what it says: the share of the data sheet's rate that tiles of
128 rows reach, and how it falls with smaller ones; a tile's own time; how far the library is from taking the best block
(1: always `PLAIN`); the share of memory bandwidth; how well both overlap; and what kernels around the GEMMs take
once, by expert, by visit and by token of 2048 channels."""

NON_LOCAL = {"absent": (1.0, 0.0, 5.0), "map_us": (10.0, 0.0, 150.0)}
"""Ranges of further coefficients where other ranks hold experts too: how much of `non_local_bytes` a kernel moves, and
what its map takes."""

LEVEL = 0.03
"""By how much the residual may fall per octave: what only streams weights takes as long for more rows."""
AXES = (
    Axis("tokens", lambda s: s["tokens"] * s["topk"] / s["experts"], -8.0, 14.0, 9, LEVEL),
    Axis("experts", lambda s: s["experts"], 2.0, 10.0, 4),
    Axis("width", lambda s: s["hidden"] * s["inter"], 16.0, 28.0, 4, LEVEL),
)
"""Sizes over which the residual may be fitted: rows per expert, experts, weights per expert."""

MAP_US = 20.6
"""Kernels that a map of a rank's own experts adds. Fitted, with what `non_local_bytes` counts, to vLLM 0.24's Triton
experts in bf16 on an H100 with 2 to 256 ranks and even routing (AIConfigurator 0.12, 456 rows): off by 6% at the
median."""
CHANNELS = 2048.0


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Both GEMMs, activation, and the sum over the chosen experts."""
    tokens, hidden, inner = shape["tokens"], shape["hidden"], shape["inter"]
    sides, up = gemm_format(dtype), shape["matrices"] - 1.0 if "matrices" in shape else 2.0
    visits, visited, rows = _routed(shape)
    weights = visited * (up + 1.0) * hidden * inner * sides.weights
    moved = weights + visits * (2.0 * hidden + (up + 1.0) * inner) * 2.0
    streamed = moved / (chip.memory_bandwidth_bytes_s * c["memory"])
    rate = chip.matrix_rate(sides.compute_dtype) / chip.sm_count

    def computed(block: int) -> Floats:
        blocks, speed = rows(block) / block, rate * c["rate"] * (block / 128.0) ** c["small"]
        found = np.zeros(1)
        for columns, depth in ((up * inner, hidden), (hidden, inner)):
            waves = np.maximum(blocks * np.ceil(columns / COLUMNS) / chip.sm_count, 1.0)
            found = found + waves * (2.0 * block * COLUMNS * depth / speed + c["tile_us"] * 1e-6)
        return found

    each = {block: computed(block) for block in BLOCKS}
    best = np.minimum.reduce(list(each.values()))
    plain = np.where(tokens <= shape["experts"], best, each[PLAIN])
    compute, p = best + c["plain"] * (plain - best), c["overlap"]
    around = c["launch_us"] * 1e-6 + shape["experts"] * c["expert_ns"] * 1e-9
    around = around + (visits * c["pair_ns"] + tokens * c["token_ns"]) * 1e-9 * hidden / CHANNELS
    found = (compute**p + streamed**p) ** (1 / p) + around
    if "absent" in shape:
        swept = shape["absent"] * non_local_bytes(hidden, inner, dtype) * c.get("absent", 1.0)
        found = found + swept / (chip.memory_bandwidth_bytes_s * c["memory"])
        found = found + (shape["absent"] > 0) * c.get("map_us", MAP_US) * 1e-6
    return np.where(tokens > 0, found, 0.0)


def _routed(shape: Shape) -> tuple[Floats, Floats, Callable[[int], Floats]]:
    """Visits, visited experts, and the rows that are computed in blocks of a size."""
    tokens, experts, topk = shape["tokens"], shape["experts"], shape["topk"]
    visits, skew = tokens * topk, shape.get("skew")
    visited = visited_by(shape)
    if skew is None:
        return visits, visited, lambda block: padded_rows(visits, visited, block)
    least, most = counts_between(tokens, experts, topk, skew)
    return visits, visited, lambda block: uneven_rows(visits, visited, block, skew, least, most)


def padded_rows(pairs: Floats, visited: Floats, block: int) -> Floats:
    """Rows computed when `pairs` rows fall on `visited` experts and each expert rounds up to `block`.

    An expert's share is spread out, so the rounding costs half a block on average, and a whole one at least.
    """
    share = pairs / np.maximum(visited, 1e-9)
    return visited * np.maximum(block, share + block / 2)


def uneven_rows(pairs: Floats, visited: Floats, block: int, skew: Floats, least: Floats, most: Floats) -> Floats:
    """Rows computed where token counts of experts have a density of x^-skew from `least` to `most`, scaled to make up
    `pairs` in all; where skew is 0, each expert has as many as any other."""
    share = pairs / np.maximum(visited, 1e-9)
    whole = integral(least, most, 1.0 - skew)
    scale = share * whole / integral(least, most, 2.0 - skew)
    turn = np.clip(block / 2 / scale, least, most)
    many = integral(turn, most, 1.0 - skew) / whole
    rows = block * (1 - many) + scale * integral(turn, most, 2.0 - skew) / whole + block / 2 * many
    return visited * np.where(skew > 0, rows, np.ceil(share / block - 1e-9) * block)
