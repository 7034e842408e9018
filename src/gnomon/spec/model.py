"""A model as shapes: blocks of one mixer and one feed-forward each, an embedding and a head."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention with grouped key-value heads."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    window: int | None = None

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values, of one token."""
        return self.kv_heads * self.head_dim

    def parameters(self, hidden: int) -> int:
        count = hidden * (self.q_width + 2 * self.kv_width) + self.q_width * hidden
        count += (self.q_width + 2 * self.kv_width) * self.qkv_bias + hidden * self.out_bias
        return count + 2 * self.head_dim * self.qk_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFfn:
    """Two matrices, or three when gated."""

    inner: int
    gated: bool = True
    bias: bool = False

    def parameters(self, hidden: int) -> int:
        up = 2 if self.gated else 1
        return (up + 1) * hidden * self.inner + (up * self.inner + hidden) * self.bias

    def active_parameters(self, hidden: int) -> int:
        return self.parameters(hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeFfn:
    """A router and gated experts, of which each token visits `topk`."""

    experts: int
    topk: int
    inner: int
    shared_inner: int = 0

    def _matrices(self, hidden: int) -> int:
        return 3 * hidden * self.inner

    def parameters(self, hidden: int) -> int:
        return self.experts * (self._matrices(hidden) + hidden) + 3 * hidden * self.shared_inner

    def active_parameters(self, hidden: int) -> int:
        return self.topk * self._matrices(hidden) + self.experts * hidden + 3 * hidden * self.shared_inner


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """`count` equal layers."""

    mixer: Attention
    ffn: DenseFfn | MoeFfn
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Everything about a network that decides its work: no weights, no hardware."""

    name: str
    family: str
    hidden: int
    vocab: int
    blocks: tuple[Block, ...]
    max_context: int
    tied_embeddings: bool = False
    dtype: str = "bf16"
    norm_bias: bool = False
    learned_positions: int = 0
    hub_id: str = ""
    source: str = ""

    @property
    def layers(self) -> int:
        return sum(block.count for block in self.blocks)

    @property
    def embedding_parameters(self) -> int:
        return self.vocab * self.hidden + self.learned_positions * self.hidden

    @property
    def head_parameters(self) -> int:
        """Weights of the output head that are stored beside the embedding."""
        return 0 if self.tied_embeddings else self.vocab * self.hidden

    @property
    def _norm_parameters(self) -> int:
        return (2 * self.layers + 1) * self.hidden * (2 if self.norm_bias else 1)

    @property
    def parameters(self) -> int:
        """Stored parameters, exactly as a checkpoint holds them."""
        body = sum(b.count * (b.mixer.parameters(self.hidden) + b.ffn.parameters(self.hidden)) for b in self.blocks)
        return body + self.embedding_parameters + self.head_parameters + self._norm_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters one token passes through (of a mixture of experts, the chosen experts only)."""
        body = sum(
            b.count * (b.mixer.parameters(self.hidden) + b.ffn.active_parameters(self.hidden)) for b in self.blocks
        )
        return body + self.embedding_parameters + self.head_parameters + self._norm_parameters

    @property
    def is_moe(self) -> bool:
        return any(isinstance(block.ffn, MoeFfn) for block in self.blocks)

    def kv_bytes_per_token(self, bytes_per_value: float, tp: int = 1) -> float:
        """Cache bytes of one token on one rank; key-value heads are copied where tp exceeds them."""
        return sum(
            block.count * 2 * max(1, block.mixer.kv_heads // tp) * block.mixer.head_dim * bytes_per_value
            for block in self.blocks
        )
