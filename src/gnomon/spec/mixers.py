"""Mixers: how tokens attend to each other. Each has its weights, and what it keeps of earlier tokens.

`cache_values` are numbers a token leaves behind on one of `tp` ranks, `state_values` numbers a sequence keeps whatever
its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.spec.parts import Tensor, count, vector


class MixerBase:
    """What every mixer has. It keeps no numbers unless it overrides this."""

    __slots__ = ()

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        raise NotImplementedError

    def parameters(self, hidden: int) -> int:
        return count(self.tensors(hidden))

    def cache_values(self, tp: int = 1) -> int:
        return 0

    def state_values(self, tp: int = 1) -> int:
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMixer(MixerBase):
    """Softmax attention with grouped key-value heads."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    key_bias: bool = True
    """Keys have a bias where queries and values have one."""
    qk_norm_whole: bool = False
    """The norm of queries and keys has a weight for every head's every channel, not one for all heads."""
    qk_norm_weight: bool = True
    qk_norm_bias: bool = False
    chunked: bool = False
    """The window does not slide: a token sees its own chunk of that length."""
    logit_cap: float | None = None
    """Scores are bent towards this bound."""
    sinks: bool = False
    """One learned score a head takes part in the softmax and mixes nothing in."""
    output_gate: bool = False
    """As many channels as the queries have are multiplied into the result."""
    rotary_dim: int | None = None
    """Channels of a head that turn with the position; all of them where not given, none where 0."""
    alibi: bool = False
    """A slope a head is added to the scores; nothing is learned."""
    relative_buckets: int = 0
    """Rows of a learned table of distances, one column a head."""
    causal: bool = True
    shared_kv: bool = False
    """Keys and values are those of an earlier layer."""
    tied_values: bool = False
    """Values are the keys before their positions: one matrix makes both."""

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values, of one token."""
        return self.kv_heads * self.head_dim

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        yield Tensor("q", self.q_width, hidden)
        yield from vector(self.q_width, self.qkv_bias)
        if self.output_gate:
            yield Tensor("q", self.q_width, hidden)
            yield from vector(self.q_width, self.qkv_bias)
        if not self.shared_kv:
            yield from self._keys_and_values(hidden)
        yield Tensor("out", hidden, self.q_width)
        yield from vector(hidden, self.out_bias)
        yield from self._norms()
        yield from vector(self.heads, self.sinks)
        yield from vector(self.relative_buckets * self.heads)

    def _keys_and_values(self, hidden: int) -> Iterator[Tensor]:
        yield Tensor("k", self.kv_width, hidden)
        yield from vector(self.kv_width, self.qkv_bias and self.key_bias)
        if not self.tied_values:
            yield Tensor("v", self.kv_width, hidden)
            yield from vector(self.kv_width, self.qkv_bias)

    def _norms(self) -> Iterator[Tensor]:
        if not self.qk_norm:
            return
        keys = 0 if self.shared_kv else (self.kv_width if self.qk_norm_whole else self.head_dim)
        widths = (self.q_width if self.qk_norm_whole else self.head_dim) + keys
        yield from vector(widths, self.qk_norm_weight)
        yield from vector(widths, self.qk_norm_bias)

    def cache_values(self, tp: int = 1) -> int:
        """Key-value heads are copied where tp exceeds them."""
        return 2 * max(1, self.kv_heads // tp) * self.head_dim if self.causal and not self.shared_kv else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """Small heads that choose the `topk` tokens the large ones attend to."""

    heads: int
    head_dim: int
    topk: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention(MixerBase):
    """Attention whose keys and values are unfolded from one small latent vector per token (MLA)."""

    heads: int
    kv_rank: int
    nope_dim: int
    """Channels of a query or key head that do not turn."""
    rope_dim: int
    """Channels that do; for keys one vector for all heads."""
    value_dim: int
    q_rank: int | None = None
    """Queries are folded too, to so many channels."""
    bias: bool = False
    """On the matrices that fold and on the one that leads out."""
    window: int | None = None
    indexer: Indexer | None = None

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        queries = self.heads * (self.nope_dim + self.rope_dim)
        if self.q_rank is None:
            yield Tensor("q", queries, hidden)
        else:
            yield Tensor("q_down", self.q_rank, hidden)
            yield from vector(self.q_rank, self.bias)
            yield from vector(self.q_rank)
            yield Tensor("q_up", queries, self.q_rank)
        yield Tensor("kv_down", self.kv_rank + self.rope_dim, hidden)
        yield from vector(self.kv_rank + self.rope_dim, self.bias)
        yield from vector(self.kv_rank)
        yield Tensor("kv_up", self.heads * (self.nope_dim + self.value_dim), self.kv_rank)
        yield Tensor("out", hidden, self.heads * self.value_dim)
        yield from vector(hidden, self.bias)
        if self.indexer is not None:
            yield from self._index(self.indexer, hidden)

    def _index(self, indexer: Indexer, hidden: int) -> Iterator[Tensor]:
        yield Tensor("index_q", indexer.heads * indexer.head_dim, self.q_rank or hidden)
        yield Tensor("index_k", indexer.head_dim, hidden)
        yield from vector(2 * indexer.head_dim)
        yield Tensor("index_weights", indexer.heads, hidden)

    def cache_values(self, tp: int = 1) -> int:
        """The latent and the turning part of the key: every rank keeps them whole."""
        return self.kv_rank + self.rope_dim + (self.indexer.head_dim if self.indexer else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention(MixerBase):
    """Queries from the stream, keys and values from what a tower has made, `source_width` channels per token."""

    heads: int
    kv_heads: int
    head_dim: int
    source_width: int
    q_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    qk_norm_whole: bool = False
    """The norm of queries and keys has a weight for every head's every channel, not one for all heads."""

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        q_width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield Tensor("cross_q", q_width, hidden)
        yield Tensor("cross_k", kv_width, self.source_width)
        yield Tensor("cross_v", kv_width, self.source_width)
        yield Tensor("cross_out", hidden, q_width)
        yield from vector(q_width, self.q_bias)
        yield from vector(kv_width, self.key_bias)
        yield from vector(kv_width, self.value_bias)
        yield from vector(hidden, self.out_bias)
        yield from vector(q_width + kv_width if self.qk_norm_whole else 2 * self.head_dim, self.qk_norm)

    def source_values(self, tp: int = 1) -> int:
        """Numbers kept of a token of the source."""
        return 2 * max(1, self.kv_heads // tp) * self.head_dim
