"""Attention over the output of a tower: as many keys for each sequence, whatever its own length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gnomon.graph.dtypes import width
from gnomon.graph.sizes import Shape, constants
from gnomon.spec.workload import Batch, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAttention:
    """Softmax attention of a step's tokens over `keys` tokens of a source, as many for each sequence: of prompts
    through a cache (`prefill`) or as plain tensors (`forward`), of decodes, or backward to the gradients of all three.
    """

    name: str
    phase: Literal["decode", "prefill", "forward", "backward"]
    heads: int
    kv_heads: int
    head_dim: int
    keys: int
    efficiency: float = 1.0
    dtype: str = "bf16"
    count: int = 1

    @property
    def kind(self) -> str:
        return f"attention_{self.phase}"

    def _attended(self, batch: Batch) -> tuple[Floats, Floats]:
        """Sequences, and their tokens."""
        if self.phase == "decode":
            return batch.decodes, batch.decodes
        return batch.prefills, batch.prefill_tokens

    def shape(self, batch: Batch) -> Shape:
        sequences, tokens = self._attended(batch)
        sums = {"sequences": sequences, "context": sequences * self.keys}
        if self.phase != "decode":
            sums |= {"tokens": tokens, "pairs": tokens * self.keys}
        heads = constants(batch, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)
        return sums | heads | constants(batch, efficiency=self.efficiency)

    def flops(self, batch: Batch) -> Floats:
        """Two matmuls forward; backward the scores again and four more."""
        matmuls = 5 if self.phase == "backward" else 2
        return 2.0 * matmuls * self._attended(batch)[1] * self.keys * self.heads * self.head_dim

    def recomputed_flops(self, batch: Batch) -> Floats:
        """Of the backward pass, the scores."""
        return 2.0 * self._attended(batch)[1] * self.keys * self.heads * self.head_dim

    def bytes(self, batch: Batch) -> Floats:
        sequences, tokens = self._attended(batch)
        values = sequences * self.keys * self.kv_heads + tokens * self.heads
        passes = 2.0 if self.phase == "backward" else 1.0
        return np.asarray(passes * 2.0 * values * self.head_dim * width(self.dtype))
