"""Dissecting Tensor Cores (Sun et al. 2022): how many warps and independent instructions fill a multiprocessor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import gnomon
from gnomon.papers.base import Ours

ON, CLOCK_HZ, COUNT, MICRO = "A100-SXM-40GB", 1410e6, 1e6, 1e-6


class Instruction(NamedTuple):
    words: str
    dtype: str
    k: int
    cycles: float
    ilp: dict[int, int]
    """Independent instructions of a warp, by warps."""


TABLE = (
    Instruction("fp16 m16n8k16", "fp16", 16, 24.7, {8: 2, 4: 3}),
    Instruction("fp16 m16n8k8", "fp16", 8, 17.7, {8: 4, 4: 4}),
    Instruction("tf32 m16n8k8", "tf32", 8, 25.0, {8: 2, 4: 3}),
    Instruction("int8 m16n8k32", "int8", 32, 24.7, {8: 2, 4: 3}),
)


def figures() -> Iterator[Ours]:
    for one in TABLE:
        for warps, ilp in one.ilp.items():
            sizes = {"m": 16, "n": 8, "k": one.k, "warps": warps, "ilp": ilp, "cycles": one.cycles, "count": COUNT}
            (row,) = gnomon.ops([{"op": "mma", "dtype": one.dtype} | sizes], on=ON)
            yield f"{one.words}, {warps} warps", COUNT * warps * 16 * 8 * one.k / (row["time_us"] * MICRO * CLOCK_HZ)
