"""Operators that are a few passes over memory, and instructions by themselves: sorts by digits, and matrix instructions
of one multiprocessor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

SORT, INSTRUCTION = "radix_sort", "mma"
COLUMNS = {SORT: ("keys", "key_bytes"), INSTRUCTION: ("m", "n", "k", "warps", "ilp", "cycles")}
OPTIONAL = {
    SORT: {"value_bytes": 0.0, "digit_bits": 8.0, "reads": 1.0},
    INSTRUCTION: {"count": 1e6},
}
KINDS = frozenset(COLUMNS)
TILE = 8192.0
"""Keys that a thread block sorts by itself before it writes them: 32 KiB of four bytes, as much as its registers and
shared memory hold."""
SECTOR = 32.0
"""Bytes that memory is written in."""
SPREAD = 0.3
"""What these formulas may be off by (log): of eight published times of sorts, on an A100 and an RTX 3090, they are 14%
less to 8% more but for one, CUB's earlier sort of keys of one byte, of which they are 32% less."""
Stream = Callable[[Floats, Floats], Floats]
"""Seconds of one kernel that reads and writes so many bytes."""


def sort_seconds(shape: Shape, stream: Stream) -> Floats:
    """Keys, with values or without, moved once for every digit. With `reads` 1 all digits are counted beforehand in
    one pass over the keys (Onesweep), with 2 each before it is moved.

    A thread block writes a run of keys for each value of a digit. Runs begin anywhere, so each takes a sector less one
    key beside its own bytes."""
    keys, key, value = shape["keys"], shape["key_bytes"], shape["value_bytes"]
    digits, runs = np.ceil(8 * key / shape["digit_bits"]), 2.0 ** shape["digit_bits"]
    each = np.minimum(TILE, keys) / runs
    written = _scattered(keys, key, each) + _scattered(keys, value, each)
    counted, nothing = stream(keys * key, np.zeros_like(keys)), np.zeros_like(keys)
    moved = stream(keys * (key + value), written)
    once = shape["reads"] < 2
    return np.asarray(np.where(once, counted, nothing) + digits * (moved + np.where(once, nothing, counted)))


def _scattered(keys: Floats, size: Floats, each: Floats) -> Floats:
    """Bytes written of so many values of a size, in runs of `each` on average."""
    beside = np.where(size > 0, np.maximum(SECTOR - size, 0.0), 0.0)
    return np.asarray(keys * (size + beside / np.maximum(each, 1.0)))


def instruction_seconds(shape: Shape, dtype: str, chip: Chip) -> Floats:
    """`count` matrix instructions of every warp of a multiprocessor: at the data sheet's rate, or as fast as those in
    flight come back, `warps` times `ilp` in a latency of `cycles`."""
    multiplied = shape["m"] * shape["n"] * shape["k"]
    clock_hz = chip.boost_hz
    peak = chip.rate(dtype) / 2 / chip.sm_count / clock_hz
    in_flight = shape["warps"] * shape["ilp"] * multiplied / shape["cycles"]
    total = shape["count"] * shape["warps"] * multiplied
    return np.asarray(total / (np.minimum(peak, in_flight) * clock_hz))
