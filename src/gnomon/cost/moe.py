"""Experts of a mixture: a grouped matrix product over the experts that the tokens visit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.cost.residual import Axis
from gnomon.graph.dtypes import product
from gnomon.graph.ops import Shape, absent_bytes, visited_experts
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

BLOCKS = (16, 32, 64, 128)
"""Rows a block takes; an expert's tokens are padded to a multiple. The library's tuning picks the best."""

COEFFICIENTS = {
    "rate": (0.55, 0.1, 1.0),
    "memory": (0.75, 0.3, 1.0),
    "launch_us": (12.0, 2.0, 60.0),
    "pair_ns": (1.0, 0.0, 20.0),
    "overlap": (2.0, 1.0, 8.0),
    "small": (0.3, 0.0, 1.5),
}
"""Where a fit starts, and the range in which each coefficient means what it says."""


AXES = (
    Axis("tokens", lambda s: s["tokens"] * s["topk"] / s["experts"], -8.0, 14.0, 9),
    Axis("experts", lambda s: s["experts"], 2.0, 10.0, 4),
    Axis("width", lambda s: s["hidden"] * s["inter"], 16.0, 28.0, 4),
)
"""Sizes over which a fit may learn what this leaves over: rows of an expert, experts, values of one."""

MAP_S = 20.6e-6
"""Kernels that a map of a rank's own experts adds. Fitted, with what `absent_bytes` counts, to vLLM 0.24's Triton
experts in bf16 on an H100 with 2 to 256 ranks and even routing (AIConfigurator 0.12, 456 rows): off by 6% at the
median."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Both products, activation, and the sum over the chosen experts."""
    tokens, hidden, inner = shape["tokens"], shape["hidden"], shape["inter"]
    sides = product(dtype)
    pairs = tokens * shape["topk"]
    visited = shape["visited"] if "visited" in shape else visited_experts(tokens, shape["experts"], shape["topk"])
    weights = visited * 3.0 * hidden * inner * sides.weights
    moved = weights + pairs * (2.0 * hidden + 3.0 * inner) * 2.0
    streamed = moved / (chip.memory_bandwidth_bytes_s * c["memory"])
    best = np.full(np.shape(tokens), np.inf)
    for block in BLOCKS:
        rows = padded_rows(pairs, visited, block)
        rate = chip.matrix_rate(sides.multiplied) * c["rate"] * (block / 128.0) ** c["small"]
        compute = 6.0 * rows * hidden * inner / rate
        p = c["overlap"]
        best = np.minimum(best, (compute**p + streamed**p) ** (1 / p))
    routing = pairs * hidden / 2048.0 * c["pair_ns"] * 1e-9
    found = best + routing + c["launch_us"] * 1e-6
    if "absent" in shape:
        swept = shape["absent"] * absent_bytes(hidden, inner, dtype)
        found = found + swept / (chip.memory_bandwidth_bytes_s * c["memory"]) + MAP_S
    return np.where(tokens > 0, found, 0.0)


def padded_rows(pairs: Floats, visited: Floats, block: int) -> Floats:
    """Rows computed when `pairs` rows fall on `visited` experts and each expert rounds up to `block`.

    An expert's share is spread out, so the rounding costs half a block on average, and a whole one at least.
    """
    share = pairs / np.maximum(visited, 1e-9)
    return visited * np.maximum(block, share + block / 2)
