"""The lengths of a training load's sequences, and how batches are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gnomon.spec.loads.base import generator
from gnomon.spec.loads.lengths.base import Lengths
from gnomon.spec.loads.packing import PackedRows, alone, best_fit_decreasing, first_fit_decreasing, wrapped
from gnomon.spec.training import BFD, FFD, MAX_LENGTH, PADDING_FREE, RANDOM, WRAPPED
from gnomon.spec.workload import Ints

PACKED: Mapping[str, Callable[[Ints, int], PackedRows]] = {
    WRAPPED: wrapped,
    BFD: best_fit_decreasing,
    FFD: first_fit_decreasing,
}
"""Ways to make sequences of several documents."""
DOCUMENTS, MOST_DOCUMENTS, ENOUGH_ROWS = 2**14, 2**16, 2**10
"""Documents that are drawn and packed: more of them where they fill few sequences."""
LENGTH, ORDER, STEP = 31, 32, 33
"""Streams of random numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences:
    """How long sequences are, and how batches are made of them. Sequences longer than a load's `seq` are cut to it."""

    lengths: Lengths
    packing: str = ""
    """One of `PACKINGS`; empty where the engine's usual one is to be taken."""
    document_masking: bool | None = None
    """Whether a token of a packed sequence attends to its own document alone; None for the engine's usual."""
    sampling: str = RANDOM
    seed: int = 0
    pads_packs: bool = True
    """Whether the engine pads packed sequences to the most there may be; else they are flattened without padding."""
    cuts_documents: bool = False
    """Whether context-parallel ranks share each document of a sequence out, not the sequence as it is."""

    @property
    def packs(self) -> bool:
        """Whether sequences are made of several documents."""
        return self.packing in PACKED

    @property
    def varlen(self) -> bool:
        """Whether attention runs document by document in one kernel."""
        return self.packing == PADDING_FREE or (self.packs and bool(self.document_masking))

    @property
    def alike(self) -> bool:
        """Whether every sequence is padded or filled to the most there may be."""
        full = self.packing == WRAPPED or (self.packs and self.pads_packs)
        return self.packing == MAX_LENGTH or (full and not self.document_masking)

    def real(self, seq: int) -> PackedRows:
        """Sequences of a drawn part of the data, with no padding."""
        return _real(self.lengths, self.lengths.identity, self.packing, self.seed, seq)

    def computed(self, seq: int) -> PackedRows:
        """The same as kernels take them: documents that attention keeps apart, with the padding that every sequence
        has. What `NONE` pads depends on the micro-batch, and is not in them."""
        found = self.real(seq)
        full = np.full(found.count, seq)
        if self.packing == MAX_LENGTH:
            return found.as_one(full)
        if not self.packs:
            return found
        if not self.document_masking:
            return found.as_one(full if self.pads_packs else found.tokens)
        return found.padded(seq) if self.pads_packs else found

    def row_tokens(self, seq: int) -> float:
        """Mean tokens of a sequence, without padding."""
        return float(self.real(seq).tokens.mean())

    def longest(self, seq: int) -> int:
        """Tokens of the longest document there may be."""
        return min(seq, self.lengths.most_tokens)

    @property
    def described(self) -> dict[str, object]:
        """As a plan writes it: whether documents are kept apart only where there are several in a sequence."""
        masking = {"document_masking": self.document_masking} if self.packs else {}
        found = {"lengths": self.lengths.text, "packing": self.packing} | masking | {"sampling": self.sampling}
        return found | ({"seed": self.seed} if self.seed else {})


def drawn_lengths(lengths: Lengths, seed: int, seq: int) -> Ints:
    """Documents of the data, cut to `seq` tokens. Of a short file, every one of it."""
    every = lengths.every
    if every is not None and every.size <= MOST_DOCUMENTS:
        return np.minimum(every, seq)
    draws = generator(seed, LENGTH)
    found = np.minimum(lengths.draw(DOCUMENTS, draws), seq)
    more = min(round(ENOUGH_ROWS * seq / float(found.mean())), MOST_DOCUMENTS) - DOCUMENTS
    return np.append(found, np.minimum(lengths.draw(more, draws), seq)) if more > 0 else found


@lru_cache(maxsize=8)
def _real(lengths: Lengths, identity: str, packing: str, seed: int, seq: int) -> PackedRows:
    found = drawn_lengths(lengths, seed, seq)
    if packing not in PACKED:
        return alone(found)
    return PACKED[packing](generator(seed, ORDER).permutation(found), seq)
