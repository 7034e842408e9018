"""Dense matrix products: tiles, waves, split-K, streaming weights.

A library picks among a few tile shapes and splits of k. We price each and take the least, as it would: that
keeps the cliffs where one more row starts another wave. Times overlap as a p-norm, between a sum and a maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from gnomon.graph.dtypes import width
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TILES = ((64, 64), (64, 128), (64, 256), (128, 128), (128, 192), (128, 256), (256, 128))
SPLITS = (1, 2, 4, 8)
FLAT_ROWS, FLAT_STEP, FLAT_SHARE = 64, 16, 0.66
"""On a chip whose arithmetic is slow for its memory (RTX 3090, P100, H20, Apple's GPUs) a tile of 64 rows would keep a
few rows from streaming the weights, and libraries have flatter tiles, in steps of 16 rows. How well those overlap is
not measured: they are held to a share of the streaming time, which no tile of an A100 or an H200 exceeds. An RTX 3090
is off by 1.2 with it on published products of up to 16 rows, by 1.4 without."""
BY_ROWS = ((64, 64, 64), (128, 64, 128), (np.inf, 128, 128))
"""vLLM's eight-bit CUTLASS kernels choose by the number of rows alone, and do not split k: up to (rows, tile)."""

COEFFICIENTS = {
    "rate": (0.8, 0.3, 1.1),
    "tile": (0.05, 0.0, 0.6),
    "memory": (0.87, 0.4, 1.0),
    "launch_us": (2.0, 0.1, 8.0),
    "epilogue_us": (0.75, 0.0, 5.0),
    "wave": (0.3, 0.0, 1.0),
    "overlap": (2.4, 1.2, 12.0),
    "split_us": (2.2, 0.0, 8.0),
    "sm_gb_s": (150.0, 10.0, 600.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds of m x k by k x n products."""
    m, n, k, batch = shape["m"], shape["n"], shape["k"], shape.get("batch", np.ones(1))
    value = width(dtype)
    streamed = batch * ((m * k + n * k) * value + m * n * 2.0) / (chip.memory_bandwidth_bytes_s * c["memory"])
    best = np.full(np.broadcast(m, n, k).shape, np.inf)
    for tile_m, tile_n, split, allowed in _menu(m, value):
        priced = _tiled(m, n, k, batch, tile_m, tile_n, split, streamed, value, chip, dtype, c)
        best = np.where(allowed & (priced < best), priced, best)
    return np.where(m > 0, best + c["launch_us"] * 1e-6, 0.0)


def _menu(m: Floats, value: float) -> Iterator[tuple[int, int, int, NDArray[np.bool_]]]:
    """Tile, split, and the rows for which the library would consider them."""
    if value >= 2:
        anywhere = np.ones(np.shape(m), bool)
        yield from ((tile_m, tile_n, split, anywhere) for tile_m, tile_n in TILES for split in SPLITS)
        return
    above = 0.0
    for rows, tile_m, tile_n in BY_ROWS:
        yield tile_m, tile_n, 1, (m > above) & (m <= rows)
        above = rows


def _tiled(
    m: Floats, n: Floats, k: Floats, batch: Floats, tile_m: int, tile_n: int, split: int, streamed: Floats,
    value: float, chip: Chip, dtype: str, c: Mapping[str, float],
) -> Floats:  # fmt: skip
    sms = chip.sm_count
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n) * batch * split
    load = tiles / sms
    waves = c["wave"] * np.ceil(load) + (1 - c["wave"]) * np.maximum(load, 1.0)
    depth = k / split
    rate = chip.matrix_rate(dtype) / sms * c["rate"] * (tile_m * tile_n / (128 * 256)) ** c["tile"]
    on_a_tile = 2.0 * tile_m * tile_n * depth / rate
    arithmetic = waves * on_a_tile
    if tile_m == FLAT_ROWS and value == 2:
        used = np.ceil(m / FLAT_STEP) * FLAT_STEP / tile_m
        flat = np.maximum(np.maximum(arithmetic * used, FLAT_SHARE * streamed), on_a_tile)
        arithmetic = np.minimum(arithmetic, flat)
    compute = arithmetic + waves * c["epilogue_us"] * 1e-6
    fed = waves * (tile_m + tile_n) * depth * value / (c["sm_gb_s"] * 1e9)
    p = c["overlap"]
    body = (compute**p + streamed**p + fed**p) ** (1 / p)
    if split == 1:
        return np.asarray(body)
    partials = split * batch * m * n * 8.0 / (2 * chip.memory_bandwidth_bytes_s)
    return np.asarray(body + c["split_us"] * 1e-6 + partials)
