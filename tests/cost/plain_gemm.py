"""A product priced one at a time, tile by tile, as the formula reads: what the arrays' version must equal."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from gnomon.cost.gemm import BY_ROWS, LEAST_PART, LONG_S, MORE_SPLITS, MORE_TILES, SPLITS, TILES
from gnomon.graph.dtypes import width
from gnomon.spec import Chip


def seconds(m: float, n: float, k: float, batch: float, dtype: str, chip: Chip, c: Mapping[str, float]) -> float:
    if m == 0:
        return 0.0
    value = width(dtype)
    streamed = batch * ((m * k + n * k) * value + m * n * max(value, 2)) / (chip.memory_bandwidth_bytes_s * c["memory"])
    menu = [(tile, split) for tile in TILES for split in SPLITS]
    menu += [(tile, 1) for tile in MORE_TILES.get(chip.architecture, ())]
    for tile in TILES:
        if ceil(m / tile[0]) * ceil(n / tile[1]) * batch * SPLITS[-1] < chip.sm_count:
            menu += [(tile, split) for split in MORE_SPLITS if k >= split * LEAST_PART]
    best = min(_priced(m, n, k, batch, tile, split, 1, streamed, dtype, chip, c) for tile, split in menu)
    tile_m, tile_n, together = next(tile for rows, *tile in BY_ROWS if m <= rows)
    by_rows = _priced(m, n, k, batch, (tile_m, tile_n), 1, together, streamed, dtype, chip, c)
    body = best ** (1 - c["fixed"]) * by_rows ** c["fixed"]
    long = (body / LONG_S) ** 2
    return float(body * (1 + c["held"] * long / (1 + long)) + c["launch_us"] * 1e-6)


def _priced(
    m: float, n: float, k: float, batch: float, tile: tuple[int, int], split: int, together: int, streamed: float,
    dtype: str, chip: Chip, c: Mapping[str, float],
) -> float:  # fmt: skip
    rows, columns = tile
    load = ceil(m / (rows * together)) * ceil(n / columns) * batch * split / (chip.sm_count / together)
    waves = c["wave"] * ceil(load) + (1 - c["wave"]) * max(load, 1)
    rate = chip.rate(dtype) / chip.sm_count * c["rate"] * (min(rows, columns, 128) / 128) ** c["tile"]
    p = c["overlap"]
    multiplied = 2 * rows * columns / rate
    fed = (rows + columns) * width(dtype) / (c["sm_gb_s"] * 1e9)
    step = (multiplied**p + fed**p + (c["step_ns"] * 1e-9) ** p) ** (1 / p)
    compute = waves * (k / split * step + c["epilogue_us"] * 1e-6)
    body = (compute**p + streamed**p) ** (1 / p)
    if split == 1:
        return float(body)
    return float(body + c["split_us"] * 1e-6 + split * batch * m * n * 8 / (2 * chip.memory_bandwidth_bytes_s))
