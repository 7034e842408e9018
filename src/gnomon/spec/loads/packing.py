"""Documents packed into sequences of so many tokens: which goes into which, and in which order."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gnomon.spec.workload import Floats, Ints


@dataclass(frozen=True, eq=False)
class PackedRows:
    """Sequences as lists of documents: what one line of a batch is made of."""

    documents: Ints
    """Tokens of each, one sequence after the other."""
    starts: Ints
    """Where the documents of each sequence begin."""

    @property
    def count(self) -> int:
        return int(self.starts.size)

    @cached_property
    def tokens(self) -> Ints:
        """Of each sequence."""
        return self.total(self.documents).astype(np.int64)

    @cached_property
    def counts(self) -> Ints:
        """Documents of each sequence."""
        return np.diff(np.append(self.starts, self.documents.size))

    @cached_property
    def longest(self) -> Ints:
        """Tokens of the longest document of each."""
        return np.asarray(np.maximum.reduceat(self.documents, self.starts), np.int64)

    @cached_property
    def pairs(self) -> Floats:
        """Causal query-key pairs inside documents, of each sequence."""
        tokens = self.documents.astype(float)
        return self.total(tokens * (tokens + 1) / 2)

    def total(self, figure: Floats | Ints) -> Floats:
        """A figure of every document, summed over those of each sequence."""
        return np.add.reduceat(figure.astype(float), self.starts)

    def as_one(self, tokens: Ints) -> PackedRows:
        """Sequences of so many tokens without a border inside."""
        return PackedRows(tokens, np.arange(tokens.size))

    def padded(self, tokens: int) -> PackedRows:
        """Filled up to so many tokens; the padding belongs to the last document, as under Megatron-LM's --sft."""
        documents, last = self.documents.copy(), np.append(self.starts[1:], self.documents.size) - 1
        documents[last] += tokens - self.tokens
        return PackedRows(documents, self.starts)


def alone(lengths: Ints) -> PackedRows:
    """Every document a sequence of its own."""
    return PackedRows(lengths, np.arange(lengths.size))


def best_fit_decreasing(lengths: Ints, capacity: int) -> PackedRows:
    """The longest first, each into the fullest sequence that it still fits into."""

    def places() -> Iterator[int]:
        by_space: dict[int, deque[int]] = {}
        spaces: list[int] = []
        opened = 0
        for length in lengths[order].tolist():
            at = bisect_left(spaces, length)
            if at == len(spaces):
                place, left, opened = opened, capacity - length, opened + 1
            else:
                space = spaces[at]
                place, left = by_space[space].popleft(), space - length
                if not by_space[space]:
                    del by_space[space], spaces[at]
            if left:
                if left not in by_space:
                    by_space[left] = deque()
                    insort(spaces, left)
                by_space[left].append(place)
            yield place

    order = _decreasing(lengths)
    return _gathered(lengths[order], np.fromiter(places(), np.int64, lengths.size))


def first_fit_decreasing(lengths: Ints, capacity: int) -> PackedRows:
    """The longest first, each into the first sequence that it still fits into. A tree has the most space of any
    sequence below each of its nodes."""

    def places() -> Iterator[int]:
        for length in lengths[order].tolist():
            at = 1
            while at < width:
                at *= 2
                at += tree[at] < length
            yield at - width
            tree[at] -= length
            while at > 1:
                at //= 2
                tree[at] = max(tree[2 * at], tree[2 * at + 1])

    order = _decreasing(lengths)
    width = 1 << max(lengths.size - 1, 0).bit_length()
    tree = [capacity] * (2 * width)
    return _gathered(lengths[order], np.fromiter(places(), np.int64, lengths.size))


def wrapped(lengths: Ints, capacity: int) -> PackedRows:
    """One document after the other, cut wherever a sequence is full; what is left at the end is dropped, but for a
    single sequence that is not full."""
    ends = np.cumsum(lengths)
    rows = max(int(ends[-1]) // capacity, 1)
    cuts = np.arange(1, rows + 1) * capacity
    most = min(int(ends[-1]), rows * capacity)
    borders = np.unique(np.concatenate([ends[ends < most], cuts[cuts <= most], [most]]))
    starts = np.append(0, np.searchsorted(borders, cuts[:-1]) + 1)
    return PackedRows(np.diff(np.append(0, borders)), starts)


def _decreasing(lengths: Ints) -> Ints:
    return np.argsort(-lengths, kind="stable")


def _gathered(lengths: Ints, place: Ints) -> PackedRows:
    """Documents by the sequence they were put into, in the order in which they were."""
    order = np.argsort(place, kind="stable")
    return PackedRows(lengths[order], np.flatnonzero(np.diff(place[order], prepend=-1)))
