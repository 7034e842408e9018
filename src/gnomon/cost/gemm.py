"""Dense matrix products: tiles, waves, split-K, streaming weights.

A library picks among a few tile shapes and splits of k. We price each and take the least, as it would: that
keeps the cliffs where one more row starts another wave. Times overlap as a p-norm, between a sum and a maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gnomon.cost.residual import Axis
from gnomon.graph.dtypes import product
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TILES = ((64, 64), (64, 128), (64, 256), (128, 128), (128, 192), (128, 256), (256, 128))
SPLITS = (1, 2, 4, 8)
MORE_SPLITS, LEAST_PART = (16, 32, 64, 128), 4096
"""Sums over very many rows, as of gradients by weight, are split further where so few tiles as they have would leave
most of the chip idle; a part has no less than so many."""
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


AXES = (
    Axis("m", lambda s: s["m"] * s.get("batch", 1.0), 0.0, 16.0, 9),
    Axis("n", lambda s: s["n"], 5.0, 18.0, 7),
    Axis("k", lambda s: s["k"], 5.0, 17.0, 7),
)
"""Sizes over which a fit may learn what this leaves over."""

ACROSS = {"across": (0.9, 0.3, 1.2), "across_twice": (0.6, 0.3, 1.2)}
"""What operands that do not lie along k make of rates, of formats whose tensor cores or loads want them so."""
UNALIGNED = (
    COEFFICIENTS
    | {"rate": (0.3, 0.02, 1.1), "tile": (0.1, 0.0, 0.9), "launch_us": (2.0, 0.1, 15.0)}
    | {"odd": (0.6, 0.2, 1.2), "odd_result": (0.4, 0.1, 1.2)}
)
"""As of others, and what rows that begin at any value, of operands or of the result alone, make of rates."""
PAIR = 4
"""Bytes that the older kernels copy at least at once."""

CHUNK = 8192
"""Rows priced at once: few enough for what lies between to stay in a processor's cache."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds of m x k by k x n products."""
    return _priced(shape, _across(shape, c), dtype, chip, c)


def unaligned_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds where rows do not begin at 16 bytes: older kernels, which copy a few values at a time."""
    inside, out = shape["aligned"], shape.get("out_aligned", shape["aligned"])
    pace = np.where(inside < PAIR, c["odd"], np.where(out < PAIR, c["odd_result"], 1.0))
    return _priced(shape, pace * _across(shape, c), dtype, chip, c)


def _across(shape: Shape, c: Mapping[str, float]) -> Floats:
    if "across" not in c or "across" not in shape:
        return np.ones(1)
    return np.asarray(np.choose(shape["across"].astype(int), [1.0, c["across"], c["across_twice"]]))


def _priced(shape: Shape, pace: Floats, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    m, n, k, batch = shape["m"], shape["n"], shape["k"], shape.get("batch", np.ones(1))
    sides = product(dtype)
    moved = batch * (m * k * sides.inputs + n * k * sides.weights + m * n * max(sides.inputs, 2.0))
    streamed = moved / (chip.memory_bandwidth_bytes_s * c["memory"])
    best = tiled(m, n, k / pace, batch, streamed, chip, dtype, c)
    return np.where(m > 0, best + c["launch_us"] * 1e-6, 0.0)


def tiled(
    m: Floats, n: Floats, k: Floats, batch: Floats, streamed: Floats, chip: Chip, dtype: str, c: Mapping[str, float]
) -> Floats:
    """Seconds under the best tile and split a library has, without launch; operands alone take `streamed`."""
    price = _any_tile if product(dtype).inputs >= 2 else _tile_by_rows
    sizes = np.broadcast_arrays(m, n, k, batch, streamed)
    flat = [size.reshape(-1) for size in sizes]
    starts = range(0, max(flat[0].size, 1), CHUNK)
    parts = [price([size[start : start + CHUNK] for size in flat], chip, dtype, c) for start in starts]
    return np.concatenate(parts).reshape(sizes[0].shape)


def _any_tile(sizes: Sequence[Floats], chip: Chip, dtype: str, c: Mapping[str, float]) -> Floats:
    """The least of all. Within a split, times are compared by their powers: one root for all tiles."""
    m, n, k, batch, streamed = sizes
    p = c["overlap"]
    rows = {tile: np.ceil(m / tile) for tile in {tile_m for tile_m, _ in TILES}}
    columns = {tile: np.ceil(n / tile) * batch for tile in {tile_n for _, tile_n in TILES}}
    streamed_p, partials = streamed**p, batch * m * n * 8.0 / (2 * chip.memory_bandwidth_bytes_s)
    best = np.full(m.shape, np.inf)
    few_rows = product(dtype).inputs == 2 and m.min(initial=FLAT_ROWS) <= FLAT_ROWS - FLAT_STEP
    for split in (*SPLITS, *(MORE_SPLITS if k.max(initial=0.0) > SPLITS[-1] * LEAST_PART else ())):
        least = np.full(m.shape, np.inf)
        for tile_m, tile_n in TILES:
            flop_s, byte_s = _paces(tile_m, tile_n, chip, dtype, c)
            tiles = rows[tile_m] * columns[tile_n]
            part = k / split if split <= SPLITS[-1] else np.maximum(k / split, LEAST_PART)
            on_a_tile, waves = part * flop_s, _waves(tiles * split, chip, c)
            if few_rows and tile_m == FLAT_ROWS:
                on_a_tile = _flat(on_a_tile, waves, m, streamed) / waves
            multiplied = (on_a_tile + c["epilogue_us"] * 1e-6) ** p
            timed = waves**p * (multiplied + (part * byte_s) ** p)
            if split > SPLITS[-1]:
                timed = np.where(tiles * SPLITS[-1] < chip.sm_count, timed, np.inf)
            np.fmin(least, timed, out=least)
        beside = c["split_us"] * 1e-6 + split * partials if split > 1 else 0.0
        np.fmin(best, (least + streamed_p) ** (1 / p) + beside, out=best)
    return best


def _flat(on_a_tile: Floats, waves: Floats, m: Floats, streamed: Floats) -> Floats:
    """Arithmetic of all waves where a flatter tile than that of 64 rows may take its place."""
    whole = waves * on_a_tile
    used = np.ceil(m / FLAT_STEP) * FLAT_STEP / FLAT_ROWS
    return np.minimum(whole, np.maximum(np.maximum(whole * used, FLAT_SHARE * streamed), on_a_tile))


def _tile_by_rows(sizes: Sequence[Floats], chip: Chip, dtype: str, c: Mapping[str, float]) -> Floats:
    m, n, k, batch, streamed = sizes
    p = c["overlap"]
    best, above = np.full(m.shape, np.inf), 0.0
    for most, tile_m, tile_n in BY_ROWS:
        flop_s, byte_s = _paces(tile_m, tile_n, chip, dtype, c)
        waves = _waves(np.ceil(m / tile_m) * np.ceil(n / tile_n) * batch, chip, c)
        compute, fed = waves * (k * flop_s + c["epilogue_us"] * 1e-6), waves * k * byte_s
        body = (compute**p + streamed**p + fed**p) ** (1 / p)
        best = np.where((m > above) & (m <= most), body, best)
        above = most
    return best


def _waves(tiles: Floats, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Rounds of tiles over the chip, whole ones as far as `wave` says."""
    load = tiles / chip.sm_count
    return np.asarray(c["wave"] * np.ceil(load) + (1 - c["wave"]) * np.maximum(load, 1.0))


def _paces(tile_m: int, tile_n: int, chip: Chip, dtype: str, c: Mapping[str, float]) -> tuple[float, float]:
    """Seconds that one step along k of one tile takes a multiprocessor: to multiply, and to be fed."""
    sides = product(dtype)
    rate = chip.matrix_rate(sides.multiplied) / chip.sm_count * c["rate"] * (tile_m * tile_n / (128 * 256)) ** c["tile"]
    return 2.0 * tile_m * tile_n / rate, (tile_m * sides.inputs + tile_n * sides.weights) / (c["sm_gb_s"] * 1e9)
