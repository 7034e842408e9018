"""Onesweep (Adinets and Merrill 2022): keys sorted by digits, each moved once, and CUB's two readings before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import gnomon
from gnomon.papers.base import Ours

A100, CARD = "A100-SXM-40GB", "RTX-3090"
MOST, FEWER = 2**28, 2**24
MICRO, MILLI, GIGA = 1e-6, 1e-3, 1e9


class Sort(NamedTuple):
    """Keys of a size, and how CUB sorted them before: digits of so many bits, read twice for each."""

    key_bytes: int
    words: str
    before_bits: int


SORTS = (Sort(1, "one-byte keys", 5), Sort(2, "two-byte keys", 7))


def _seconds(on: str, keys: int, key_bytes: int, bits: int = 8, reads: int = 1) -> float:
    row = {
        "op": "radix_sort",
        "dtype": "fp32",
        "keys": keys,
        "key_bytes": key_bytes,
        "digit_bits": bits,
        "reads": reads,
    }
    return float(gnomon.ops([row], on=on)[0]["time_us"]) * MICRO


def figures() -> Iterator[Ours]:
    ours, before = _seconds(A100, MOST, 4), _seconds(A100, MOST, 4, bits=7, reads=2)
    yield "A100, four-byte keys", MOST / ours / GIGA
    yield "A100, four-byte keys: sooner than CUB by", before / ours
    yield "moves of a key for each digit", 2.0
    for one in SORTS:
        for keys, power in ((MOST, 28), (FEWER, 24)):
            yield f"RTX 3090, {one.words}, 2^{power}", _seconds(CARD, keys, one.key_bytes) / MILLI
        before = _seconds(CARD, MOST, one.key_bytes, bits=one.before_bits, reads=2)
        yield f"RTX 3090, {one.words}, 2^28, CUB before", before / MILLI
        yield f"RTX 3090, {one.words}, 2^28: sooner by", before / _seconds(CARD, MOST, one.key_bytes)
