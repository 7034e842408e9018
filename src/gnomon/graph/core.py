"""Attention over whole sequences, as training runs it: windows, values of other widths, sequences on several ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gnomon.graph.dtypes import width
from gnomon.graph.ops import Attention, Shape
from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreAttention(Attention):
    """Forward over whole causal sequences, and backward to the gradients of queries, keys and values.

    The batch holds what one rank has of each sequence; with several, each has an early piece and a late one, so that
    causal pairs are shared out evenly.
    """

    over: int = 1
    """Ranks that a sequence lies on; each meets the keys of all."""
    traded: bool = False
    """The ranks have traded tokens for heads: each has all tokens of its own heads."""

    def pairs(self, batch: Batch) -> Floats:
        """Of queries and keys, a head on one rank."""
        return self._of_a_part(batch) * (self.over if self.traded else 1)

    def _of_a_part(self, batch: Batch) -> Floats:
        whole = self.over * batch.prefill_pairs - (self.over - 1) / 2 * batch.prefill_tokens
        if self.window is None:
            return whole
        return np.asarray(batch.prefills * self.window.below(self.over * batch.prompt) / self.over)

    def queries(self, batch: Batch) -> Floats:
        return batch.prefill_tokens * (self.over if self.traded else 1)

    def shape(self, batch: Batch) -> Shape:
        """Kernels take heads of one width: the mean of those the products have."""
        wide, narrow = (3, 2) if self.phase == "backward" else (1, 1)
        mean = (wide * self.head_dim + narrow * self.values) / (wide + narrow)
        sizes = {"heads": self.heads, "kv_heads": self.kv_heads, "head_dim": mean}
        sums = {"sequences": batch.prefills, "tokens": self.queries(batch), "pairs": self.pairs(batch)}
        sums |= {"context": self.over * batch.prefill_context}
        return sums | {name: np.full(batch.size, float(size)) for name, size in sizes.items()}

    def flops(self, batch: Batch) -> Floats:
        """Two products forward; backward the scores again, then the gradients of queries, keys, values and scores."""
        wide, narrow = (3, 2) if self.phase == "backward" else (1, 1)
        return 2.0 * (wide * self.head_dim + narrow * self.values) * self.pairs(batch) * self.heads

    @property
    def scores_share(self) -> float:
        """Of the FLOPs backward, those that make the scores again."""
        return self.head_dim / (3 * self.head_dim + 2 * self.values)

    def bytes(self, batch: Batch) -> Floats:
        """Forward queries, keys and values are read and the result written; backward all four and the result's
        gradient are read, and three gradients written."""
        passes = 2.0 if self.phase == "backward" else 1.0
        each = (self.head_dim + self.values) * width(self.dtype)
        keys = self.over * batch.prefill_context * self.kv_heads
        return passes * each * (keys + self.queries(batch) * self.heads)
