"""TEMPI (Pearson et al. 2020): objects with gaps sent after one kernel packed them, and block by block."""

from __future__ import annotations

from collections.abc import Iterator

import gnomon
from gnomon.papers.base import Ours

CARD, OBJECT, SECTOR = "V100-SXM2-32GB", 2**20, 32
BLOCK_US, PLAIN_US = 30_000 / 1024, 148.0
"""One block under Spectrum MPI, and 1 MiB without gaps, as both were measured."""


def _kernel_us(block: int) -> float:
    """Packing, or unpacking: a side with gaps, of which full sectors move, and a side without."""
    gaps = OBJECT // block * max(block, SECTOR)
    (row,) = gnomon.ops([{"op": "elementwise", "dtype": "bf16", "bytes_read": gaps, "bytes_written": OBJECT}], on=CARD)
    return float(row["time_us"])


def _send_us(block: int) -> float:
    return PLAIN_US + 2 * _kernel_us(block)


def figures() -> Iterator[Ours]:
    yield "1 MiB in blocks of one byte, MPI_Send, over Spectrum MPI", OBJECT * BLOCK_US / _send_us(1)
    for block, words in ((1, "one byte"), (8, "8 bytes"), (256, "256 bytes")):
        yield f"1 MiB in blocks of {words}, TEMPI", _send_us(block)
