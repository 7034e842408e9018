"""Dense GEMMs: tiles, waves, split-K, streaming weights.

A library picks among a few tile shapes and splits of k. We price each and take the least, as it would: that
keeps the cliffs where one more row starts another wave. Some kernels have one tile for many rows and never split k;
how far a family is theirs is a coefficient. Times overlap as a p-norm, between a sum and a maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gnomon.cost.residual import Axis
from gnomon.graph.dtypes import GemmFormat, gemm_format
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TILES = (
    (16, 64), (32, 64), (64, 32), (64, 64), (64, 128), (64, 256), (128, 128), (128, 192), (128, 256), (256, 128)
)  # fmt: skip
MORE_TILES = dict.fromkeys(
    ("Hopper", "Blackwell"), ((128, 64), (128, 96), (96, 128), (128, 160), (160, 128), (192, 128), (192, 192))
)
"""cuBLAS of CUDA 13.0 has kernels with a side of a multiple of 64 and another of 8, chosen so that tiles just fill the
chip: the names of 748 kernels on an H200 (`measurements/h200-2026-11-15/products.csv`), where a step along k takes 1.2
to 1.35 of its time at the peak, at the median of each tile with no side below 112. Of Blackwell no names are known:
these tiles lower the error on its published tables a little, and raise it on Ampere's."""
SPLITS = (1, 2, 4, 8)
MORE_SPLITS, LEAST_PART = (16, 32, 64, 128), 4096
"""Sums over very many rows, as of gradients by weight, are split further where so few tiles as they have would leave
most of the chip idle; a part has no less than so many."""
BY_ROWS = ((64.0, 64, 64, 1), (128.0, 64, 128, 1), (np.inf, 128, 128, 2))
"""CUTLASS kernels of vLLM and SGLang choose by the number of rows alone, and do not split k: up to (rows, tile), and
how many tiles of neighbouring rows share what they read: they run together, or idle together."""
LONG_S = 1e-3
"""Published GEMMs of about this length were slowed down, apparently by the power limit, shorter ones not (GB200,
vLLM in bf16: 1800 TFLOP/s up to 0.5 ms, 1100 from 1 ms on; SGLang in block-scaled fp8: 3200 and 1600)."""

TILED = {
    "rate": (0.8, 0.2, 1.0),
    "tile": (0.2, 0.0, 1.0),
    "memory": (0.87, 0.3, 1.0),
    "launch_us": (2.5, 0.1, 30.0),
    "epilogue_us": (0.75, 0.0, 5.0),
    "wave": (0.3, 0.0, 1.0),
    "overlap": (3.0, 1.2, 12.0),
    "split_us": (2.2, 0.0, 12.0),
    "sm_gb_s": (150.0, 10.0, 800.0),
}
"""Where a fit starts, and the range in which each coefficient means what it says: shares of the chip's arithmetic and
of its bandwidth, what tiles with a side below 128 lose, how far waves are whole, how well times overlap, and what
feeds one multiprocessor."""
COEFFICIENTS = TILED | {"step_ns": (0.7, 0.0, 6.0), "held": (0.05, 0.0, 2.0), "fixed": (0.2, 0.0, 1.0)}
"""And the least time of one step along k, however small the tile; how much longer long GEMMs take than short ones;
how far tiles are chosen by rows alone."""


LEVEL = 0.03
"""By how much the residual may fall per octave of rows: few rows only stream the weights, however many they are."""
AXES = (
    Axis("m", lambda s: s["m"] * s.get("batch", 1.0), 0.0, 16.0, 13, LEVEL),
    Axis("n", lambda s: s["n"], 5.0, 18.0, 9),
    Axis("k", lambda s: s["k"], 5.0, 17.0, 9),
)
"""Sizes over which the residual of this formula may be fitted."""

ACROSS = {"across": (0.9, 0.3, 1.2), "across_twice": (0.6, 0.3, 1.2)}
"""What operands that do not lie along k make of rates, of formats whose tensor cores or loads want them so."""
QUANTISED = {"quantised": (1.0, 0.0, 6.0), "quantised_row_ns": (1.0, 0.0, 20.0)}
"""Of tables whose times hold the making of narrow activations from wide ones, which steps list apart: passes over their
bytes at the full bandwidth, and nanoseconds per row. vLLM 0.24 took an H100 0.24 ms to multiply 32768 rows by 32x32."""
UNALIGNED = (
    TILED
    | {"rate": (0.3, 0.02, 1.1), "tile": (0.1, 0.0, 0.9), "launch_us": (2.0, 0.1, 15.0)}
    | {"odd": (0.6, 0.2, 1.2), "odd_result": (0.4, 0.1, 1.2)}
)
"""`TILED`, and what rows that begin at any value, of operands or of the result alone, make of rates."""
PAIR = 4
"""Bytes that the older kernels copy at least at once."""

CHUNK = 8192
"""Rows priced at once: few enough for what lies between to stay in a processor's cache."""


def seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds of m x k by k x n GEMMs."""
    return _priced(shape, _across(shape, c), dtype, chip, c)


def unaligned_seconds(shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds where rows do not begin at 16 bytes: older kernels, which copy a few values at a time."""
    inside, out = shape["aligned"], shape.get("out_aligned", shape["aligned"])
    efficiency = np.where(inside < PAIR, c["odd"], np.where(out < PAIR, c["odd_result"], 1.0))
    return _priced(shape, efficiency * _across(shape, c), dtype, chip, c)


def _across(shape: Shape, c: Mapping[str, float]) -> Floats:
    if "across" not in c or "across" not in shape:
        return np.ones(1)
    return np.asarray(np.choose(shape["across"].astype(int), [1.0, c["across"], c["across_twice"]]))


def _priced(shape: Shape, efficiency: Floats, dtype: str, chip: Chip, c: Mapping[str, float]) -> Floats:
    m, n, k, batch = shape["m"], shape["n"], shape["k"], shape.get("batch", np.ones(1))
    sides = gemm_format(dtype)
    moved = batch * (m * k * sides.inputs + n * k * sides.weights + m * n * max(sides.inputs, 2.0))
    streamed = moved / (chip.memory_bandwidth_bytes_s * c["memory"])
    body = tiled(m, n, k / efficiency, batch, streamed, chip, dtype, c)
    if c.get("held"):
        length = (body / LONG_S) ** 2
        body = body * (1 + c["held"] * length / (1 + length))
    return np.where(m > 0, body + c["launch_us"] * 1e-6 + _quantised(shape, sides, chip, c), 0.0)


def _quantised(shape: Shape, sides: GemmFormat, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Seconds of quantizing the activations, for rows that were timed together with it."""
    if "quantised" not in shape:
        return np.zeros(1)
    rows = shape["m"] * shape.get("batch", np.ones(1))
    return np.where(shape["quantised"] > 0, narrowing_seconds(rows, shape["k"], sides, chip, c), 0.0)


def narrowing_seconds(rows: Floats, k: Floats | float, sides: GemmFormat, chip: Chip, c: Mapping[str, float]) -> Floats:
    """Device seconds of quantizing rows of k activations, as the tables of linear layers have it."""
    a_row = c["quantised"] * k * (2.0 + sides.inputs) / chip.memory_bandwidth_bytes_s
    return np.asarray(rows * (a_row + c["quantised_row_ns"] * 1e-9) + c["launch_us"] * 1e-6)


def tiled(
    m: Floats, n: Floats, k: Floats, batch: Floats, streamed: Floats, chip: Chip, dtype: str, c: Mapping[str, float]
) -> Floats:
    """Seconds under the tile and split a library picks, without launch; operands alone take `streamed`."""
    sizes = np.broadcast_arrays(m, n, k, batch, streamed)
    flat = [size.reshape(-1) for size in sizes]
    starts = range(0, max(flat[0].size, 1), CHUNK)
    parts = [_picked([size[start : start + CHUNK] for size in flat], chip, dtype, c) for start in starts]
    return np.concatenate(parts).reshape(sizes[0].shape)


def _picked(sizes: Sequence[Floats], chip: Chip, dtype: str, c: Mapping[str, float]) -> Floats:
    """Between the best of all tiles and the one that the rows decide, as far as `fixed` says; a family that does not
    say has the kernels of its format: eight-bit ones CUTLASS's, others cuBLAS's."""
    fixed = c.get("fixed", 0.0 if gemm_format(dtype).inputs >= 2 else 1.0)
    if fixed == 0:
        return _any_tile(sizes, chip, dtype, c)
    if fixed == 1:
        return _tile_by_rows(sizes, chip, dtype, c)
    return np.asarray(_any_tile(sizes, chip, dtype, c) ** (1 - fixed) * _tile_by_rows(sizes, chip, dtype, c) ** fixed)


def _any_tile(sizes: Sequence[Floats], chip: Chip, dtype: str, c: Mapping[str, float]) -> Floats:
    """Seconds under the fastest tile and split."""
    m, n, k, batch, streamed = sizes
    p, epilogue = c["overlap"], c["epilogue_us"] * 1e-6
    menu = TILES + MORE_TILES.get(chip.generation, ())
    rows = {tile: np.ceil(m / tile) for tile in {tile_m for tile_m, _ in menu}}
    columns = {tile: np.ceil(n / tile) * batch for tile in {tile_n for _, tile_n in menu}}
    tiles = {tile: rows[tile[0]] * columns[tile[1]] for tile in menu}
    steps = {tile: _step(*tile, chip, dtype, c) for tile in menu}
    streamed_p, partials = streamed**p, batch * m * n * 8.0 / (2 * chip.memory_bandwidth_bytes_s)
    best = np.full(m.shape, np.inf)
    for split in (*SPLITS, *(MORE_SPLITS if k.max(initial=0.0) > SPLITS[-1] * LEAST_PART else ())):
        least = np.full(m.shape, np.inf)
        part = k / split if split <= SPLITS[-1] else np.maximum(k / split, LEAST_PART)
        for tile in menu if split == 1 else TILES:
            timed = _waves(tiles[tile] * split, chip.sm_count, c) * (part * steps[tile] + epilogue)
            if split > SPLITS[-1]:
                timed = np.where(tiles[tile] * SPLITS[-1] < chip.sm_count, timed, np.inf)
            np.fmin(least, timed, out=least)
        beside = c["split_us"] * 1e-6 + split * partials if split > 1 else 0.0
        np.fmin(best, (least**p + streamed_p) ** (1 / p) + beside, out=best)
    return best


def _tile_by_rows(sizes: Sequence[Floats], chip: Chip, dtype: str, c: Mapping[str, float]) -> Floats:
    m, n, k, batch, streamed = sizes
    p, compute, above = c["overlap"], np.zeros(m.shape), 0.0
    for most, tile_m, tile_n, together in BY_ROWS:
        tiles = np.ceil(m / (tile_m * together)) * np.ceil(n / tile_n) * batch
        waves = _waves(tiles, chip.sm_count / together, c)
        timed = waves * (k * _step(tile_m, tile_n, chip, dtype, c) + c["epilogue_us"] * 1e-6)
        compute = np.where((m > above) & (m <= most), timed, compute)
        above = most
    return np.asarray((compute**p + streamed**p) ** (1 / p))


def _waves(tiles: Floats, at_once: float, c: Mapping[str, float]) -> Floats:
    """Rounds of tiles over the chip, whole ones as far as `wave` says."""
    load = tiles / at_once
    return np.asarray(c["wave"] * np.ceil(load) + (1 - c["wave"]) * np.maximum(load, 1.0))


def _step(tile_m: int, tile_n: int, chip: Chip, dtype: str, c: Mapping[str, float]) -> float:
    """Seconds that one step along k of one tile takes a multiprocessor: to multiply, to be fed, and the least of a loop
    iteration."""
    sides, p = gemm_format(dtype), c["overlap"]
    whole = min(tile_m, tile_n, 128) / 128
    rate = chip.gemm_rate(sides.compute_dtype, sparse=sides.sparse) / chip.sm_count * c["rate"] * whole ** c["tile"]
    multiplied = 2.0 * tile_m * tile_n / rate
    fed = (tile_m * sides.inputs + tile_n * sides.weights) / (c["sm_gb_s"] * 1e9)
    return float((multiplied**p + fed**p + (c.get("step_ns", 0.0) * 1e-9) ** p) ** (1 / p))
