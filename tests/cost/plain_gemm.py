"""A product priced one at a time, tile by tile, as the formula reads: what the arrays' version must equal."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, inf

from gnomon.cost.gemm import BY_ROWS, LEAST_PART, MORE_SPLITS, SPLITS, TILES
from gnomon.graph.dtypes import width
from gnomon.spec import Chip


def seconds(m: float, n: float, k: float, batch: float, dtype: str, chip: Chip, c: Mapping[str, float]) -> float:
    if m == 0:
        return 0.0
    value = width(dtype)
    streamed = batch * ((m * k + n * k) * value + m * n * max(value, 2)) / (chip.memory_bandwidth_bytes_s * c["memory"])
    if value >= 2:
        menu = [(tile, split) for tile in TILES for split in SPLITS]
        for tile in TILES:
            if ceil(m / tile[0]) * ceil(n / tile[1]) * batch * SPLITS[-1] < chip.sm_count:
                menu += [(tile, split) for split in MORE_SPLITS if k >= split * LEAST_PART]
    else:
        menu = [(next((tile_m, tile_n) for rows, tile_m, tile_n in BY_ROWS if m <= rows), 1)]
    best = min((_priced(m, n, k, batch, tile, split, streamed, dtype, chip, c) for tile, split in menu), default=inf)
    return best + c["launch_us"] * 1e-6


def _priced(
    m: float, n: float, k: float, batch: float, tile: tuple[int, int], split: int, streamed: float, dtype: str,
    chip: Chip, c: Mapping[str, float],
) -> float:  # fmt: skip
    rows, columns = tile
    load = ceil(m / rows) * ceil(n / columns) * batch * split / chip.sm_count
    waves = c["wave"] * ceil(load) + (1 - c["wave"]) * max(load, 1)
    rate = chip.rate(dtype) / chip.sm_count * c["rate"] * (rows * columns / (128 * 256)) ** c["tile"]
    compute = waves * (2 * rows * columns * (k / split) / rate + c["epilogue_us"] * 1e-6)
    fed = waves * (rows + columns) * (k / split) * width(dtype) / (c["sm_gb_s"] * 1e9)
    p = c["overlap"]
    body = (compute**p + streamed**p + fed**p) ** (1 / p)
    if split == 1:
        return float(body)
    return float(body + c["split_us"] * 1e-6 + split * batch * m * n * 8 / (2 * chip.memory_bandwidth_bytes_s))
