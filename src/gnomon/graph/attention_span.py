"""Attention without a cache of its own tokens: bidirectional, or over the output of a tower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gnomon.graph.dtypes import width
from gnomon.graph.sizes import Shape, constants
from gnomon.spec.workload import Batch, Floats

MASK_BYTES = 2.0
"""Bytes of one number that is added to a score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAttention:
    """Softmax attention over whole sequences in both directions, all sequences of a step equally long."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    keys: float | None = None
    """How many tokens a token sees on average, itself included; all of its sequence where not given."""
    pieces: int = 1
    """Parts of a sequence that attend only to themselves."""
    masked: bool = False
    """A number for each pair and head is read and added to its score."""
    efficiency: float = 1.0
    """Throughput of its kernel relative to FlashAttention's."""
    dtype: str = "bf16"
    count: int = 1
    kind: Literal["attention_forward"] = "attention_forward"

    def pairs(self, batch: Batch) -> Floats:
        seen = batch.prompt if self.keys is None else self.keys
        return batch.prefill_tokens * seen

    def shape(self, batch: Batch) -> Shape:
        sums = {"sequences": batch.prefills * self.pieces, "tokens": batch.prefill_tokens, "pairs": self.pairs(batch)}
        return sums | {"context": batch.prefill_tokens} | _heads(self, batch)

    def flops(self, batch: Batch) -> Floats:
        return 4.0 * self.pairs(batch) * self.heads * self.head_dim

    def bytes(self, batch: Batch) -> Floats:
        channels = 2.0 * (self.heads + self.kv_heads) * self.head_dim
        added = self.pairs(batch) * self.heads * MASK_BYTES if self.masked else 0.0
        return batch.prefill_tokens * channels * width(self.dtype) + added


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAttention:
    """Softmax attention of a step's tokens over `keys` tokens of a source, as many for each sequence: of prompts
    through a cache (`prefill`) or as plain tensors (`forward`), or of decodes."""

    name: str
    phase: Literal["decode", "prefill", "forward"]
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
        return sums | _heads(self, batch)

    def flops(self, batch: Batch) -> Floats:
        return 4.0 * self._attended(batch)[1] * self.keys * self.heads * self.head_dim

    def bytes(self, batch: Batch) -> Floats:
        sequences, tokens = self._attended(batch)
        values = sequences * self.keys * self.kv_heads + tokens * self.heads
        return 2.0 * values * self.head_dim * width(self.dtype)


SpanAttention = WholeAttention | SourceAttention


def _heads(op: SpanAttention, batch: Batch) -> Shape:
    return constants(batch, heads=op.heads, kv_heads=op.kv_heads, head_dim=op.head_dim, efficiency=op.efficiency)
