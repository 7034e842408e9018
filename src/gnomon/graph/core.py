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


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreAttention(Attention):
    """Forward over whole sequences, and backward to the gradients of queries, keys and values.

    The batch holds what one rank has of each sequence; with several, each has an early piece and a late one, so that
    causal pairs are balanced.
    """

    causal: bool = True
    over: int = 1
    """Ranks that a sequence lies on; each meets the keys of all."""
    traded: bool = False
    """The ranks have traded tokens for heads: each has all tokens of its own heads."""

    def _pairs(self, batch: Batch) -> Floats:
        """Query-key pairs of one head on one rank."""
        length = self.over * batch.prompt
        if self.causal and self.window is None:
            pairs = self.over * batch.prefill_pairs - (self.over - 1) / 2 * batch.prefill_tokens
        elif batch.documents is not None:
            pairs = batch.documents.total(self._of_document) / self.over
        elif not self.causal:
            pairs = batch.prefill_tokens * self._both_ways(length)
        else:
            assert self.window is not None
            pairs = np.asarray(batch.prefills * self.window.below(length) / self.over)
        return pairs * (self.over if self.traded else 1)

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

    def queries(self, batch: Batch) -> Floats:
        return batch.prefill_tokens * (self.over if self.traded else 1)

    def shape(self, batch: Batch) -> Shape:
        """Kernels take heads of one width: the mean over the matmuls."""
        wide, narrow = (3, 2) if self.phase == "backward" else (1, 1)
        mean = (wide * self.head_dim + narrow * self.values) / (wide + narrow)
        sums = {"sequences": batch.prefills, "tokens": self.queries(batch), "pairs": self._pairs(batch)}
        sums |= {"context": self.over * batch.prefill_context} | self._by_document(batch)
        beside = {"bends": 2} if self.capped else {}
        return sums | constants(batch, heads=self.heads, kv_heads=self.kv_heads, head_dim=mean, **beside)

    def _by_document(self, batch: Batch) -> Shape:
        """What a kernel over documents of unequal length takes beside their sums: blocks of tokens, of which each
        document begins its own, those of queries that stay empty, times the blocks of keys that they meet, and the
        longest document. Ranks of context parallelism wait for the busiest of them."""
        if batch.documents is None:
            return {}
        documents, own = batch.documents, 1 if self.traded else self.over

        def blocks(tokens: Floats) -> Floats:
            return np.asarray(np.ceil(tokens / BLOCK))

        def empty(tokens: Floats) -> Floats:
            return (blocks(tokens / own) - tokens / own / BLOCK) * blocks(tokens)

        load = 1.0 if self.traded else documents.cp_load
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
        return 2.0 * self._pairs(batch) * self.heads * self.head_dim

    def bytes(self, batch: Batch) -> Floats:
        """Forward queries, keys and values are read and the result written; backward all four and the result's
        gradient are read, and three gradients written."""
        passes = 2.0 if self.phase == "backward" else 1.0
        each = (self.head_dim + self.values) * width(self.dtype)
        keys = self.over * batch.prefill_context * self.kv_heads
        return passes * each * (keys + self.queries(batch) * self.heads)
