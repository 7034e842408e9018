"""Attention over whole sequences, as training runs it: windows, values of other widths, sequences on several ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.graph.dtypes import width
from gnomon.graph.ops import Attention, Shape
from gnomon.graph.sizes import constants
from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreAttention(Attention):
    """Forward over whole causal sequences, and backward to the gradients of queries, keys and values.

    The batch holds what one rank has of each sequence; with several, each has an early piece and a late one, so that
    causal pairs are balanced.
    """

    over: int = 1
    """Ranks that a sequence lies on; each meets the keys of all."""
    traded: bool = False
    """The ranks have traded tokens for heads: each has all tokens of its own heads."""

    def _pairs(self, batch: Batch) -> Floats:
        """Query-key pairs of one head on one rank."""
        if self.window is None:
            pairs = self.over * batch.prefill_pairs - (self.over - 1) / 2 * batch.prefill_tokens
        else:
            pairs = np.asarray(batch.prefills * self.window.below(self.over * batch.prompt) / self.over)
        return pairs * (self.over if self.traded else 1)

    def queries(self, batch: Batch) -> Floats:
        return batch.prefill_tokens * (self.over if self.traded else 1)

    def shape(self, batch: Batch) -> Shape:
        """Kernels take heads of one width: the mean over the matmuls."""
        wide, narrow = (3, 2) if self.phase == "backward" else (1, 1)
        mean = (wide * self.head_dim + narrow * self.values) / (wide + narrow)
        sums = {"sequences": batch.prefills, "tokens": self.queries(batch), "pairs": self._pairs(batch)}
        sums |= {"context": self.over * batch.prefill_context}
        return sums | constants(batch, heads=self.heads, kv_heads=self.kv_heads, head_dim=mean)

    @property
    def scores_share(self) -> float:
        """The share of the backward FLOPs that recomputes the scores."""
        return self.head_dim / (3 * self.head_dim + 2 * self.values)

    def bytes(self, batch: Batch) -> Floats:
        """Forward queries, keys and values are read and the result written; backward all four and the result's
        gradient are read, and three gradients written."""
        passes = 2.0 if self.phase == "backward" else 1.0
        each = (self.head_dim + self.values) * width(self.dtype)
        keys = self.over * batch.prefill_context * self.kv_heads
        return passes * each * (keys + self.queries(batch) * self.heads)
