"""Attention over whole sequences, as training runs it: causal or in both directions, inside windows, with values of
other widths, over sequences on several ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.graph.dtypes import width
from gnomon.graph.ops import Attention, Shape
from gnomon.graph.sizes import constants
from gnomon.spec.workload import Batch, Floats

BLOCK = 128
"""Tokens that kernels over whole sequences take at a time (`gnomon.cost.attention`): a document never shares one with
the next."""
MASK_BYTES = 2.0
"""Bytes of one number that is added to a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreAttention(Attention):
    """Forward over whole sequences, and backward to the gradients of queries, keys and values.

    The batch holds what one rank has of each sequence; with several, each has an early piece and a late one, so that
    causal pairs are balanced.
    """

    causal: bool = True
    keys: float | None = None
    """Tokens that one sees on average, itself included, where neither causality nor a sliding window says it."""
    pieces: int = 1
    """Parts of a sequence that attend only to themselves."""
    masked: bool = False
    """A number for each pair and head is read and added to its score."""
    learned: bool = False
    """Those numbers have gradients."""
    each: tuple[float, int] | None = None
    """Sequences for each one of the batch, and their length, where they are not the batch's own: images of a text."""
    over: int = 1
    """Ranks that a sequence lies on; each meets the keys of all."""
    traded: int = 1
    """Of those, ranks that have traded tokens for heads: each has their tokens together, of its own heads."""

    def _pairs(self, batch: Batch) -> Floats:
        """Query-key pairs of one head on one rank."""
        length = self.over * batch.prompt
        if self.keys is not None:
            pairs = batch.prefill_tokens * self.keys
        elif self.causal and self.window is None:
            pairs = self.over * batch.prefill_pairs - (self.over - 1) / 2 * batch.prefill_tokens
        elif batch.documents is not None:
            pairs = batch.documents.total(self._of_document) / self.over
        elif not self.causal:
            pairs = batch.prefill_tokens * self._both_ways(length)
        else:
            assert self.window is not None
            pairs = np.asarray(batch.prefills * self.window.below(length) / self.over)
        return pairs * self.traded

    def _of_document(self, tokens: Floats) -> Floats:
        """Query-key pairs of one head in a document."""
        if not self.causal:
            return tokens * self._both_ways(tokens)
        assert self.window is not None
        return self.window.below(tokens)

    def _both_ways(self, length: Floats) -> Floats:
        """Tokens that one sees on average, itself included: half of a window lies on each side."""
        if self.window is None:
            return length
        reach = np.minimum(self.window.length // 2, length - 1)
        return np.asarray(1 + reach * (2 * length - reach - 1) / np.maximum(length, 1))

    def _own(self, batch: Batch) -> Batch:
        """The sequences it runs over."""
        return batch if self.each is None else Batch.prefill(batch.prefills * self.each[0], self.each[1])

    def queries(self, batch: Batch) -> Floats:
        return self._own(batch).prefill_tokens * self.traded

    def flops(self, batch: Batch) -> Floats:
        return Attention.flops(self, self._own(batch))

    def shape(self, batch: Batch) -> Shape:
        """Kernels take heads of one width: the mean over the matmuls."""
        own = self._own(batch)
        wide, narrow = (3, 2) if self.phase == "backward" else (1, 1)
        mean = (wide * self.head_dim + narrow * self.values) / (wide + narrow)
        sums = {"sequences": own.prefills * self.pieces, "tokens": self.queries(batch), "pairs": self._pairs(own)}
        sums |= {"context": self.over * own.prefill_context} | self._by_document(own)
        beside = {"bends": 2.0} if self.capped else {}
        beside |= {"efficiency": self.efficiency} if self.efficiency != 1 else {}
        return sums | constants(batch, heads=self.heads, kv_heads=self.kv_heads, head_dim=mean, **beside)

    def _by_document(self, batch: Batch) -> Shape:
        """What a kernel over documents of unequal length takes beside their sums: blocks of tokens, of which each
        document begins its own, those of queries that stay empty, times the blocks of keys that they meet, and the
        longest document. Ranks of context parallelism wait for the busiest of them."""
        if batch.documents is None:
            return {}
        documents, own = batch.documents, self.over // self.traded

        def blocks(tokens: Floats) -> Floats:
            return np.asarray(np.ceil(tokens / BLOCK))

        def empty(tokens: Floats) -> Floats:
            return (blocks(tokens / own) - tokens / own / BLOCK) * blocks(tokens)

        load = 1.0 if own == 1 else documents.cp_load
        return {
            "pairs": self._pairs(batch) * load,
            "query_blocks": documents.total(lambda tokens: blocks(tokens / own)),
            "key_blocks": documents.total(blocks),
            "empty_blocks": documents.total(empty),
            "longest_queries": documents.longest / own,
            "longest_keys": documents.longest,
        }

    def recomputed_flops(self, batch: Batch) -> Floats:
        """Of the five matmuls of the backward pass, one computes the scores again."""
        return 2.0 * self._pairs(self._own(batch)) * self.heads * self.head_dim

    def bytes(self, batch: Batch) -> Floats:
        """Forward queries, keys and values are read and the result written; backward all four and the result's
        gradient are read, and three gradients written. A mask is read, and backward its gradient written."""
        own, backward = self._own(batch), self.phase == "backward"
        each = (self.head_dim + self.values) * width(self.dtype)
        keys = self.over * own.prefill_context * self.kv_heads
        values = (2.0 if backward else 1.0) * each * (keys + self.queries(batch) * self.heads)
        passes = (1 + (backward and self.learned)) * self.masked
        return values + passes * self._pairs(own) * self.heads * MASK_BYTES if passes else values
