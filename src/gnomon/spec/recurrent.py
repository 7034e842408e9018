"""Mixers that keep a state of fixed size instead of a cache: state spaces, linear attention, convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.spec.mixers import MixerBase
from gnomon.spec.parts import Tensor, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba(MixerBase):
    """The first selective state space: a decay for each channel and state, and a step of rank `dt_rank`."""

    inner: int
    state: int
    dt_rank: int
    conv: int = 4
    conv_bias: bool = True
    bias: bool = False
    norms: bool = False
    """The step and both state vectors are normed."""

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        yield Tensor("in", 2 * self.inner, hidden)
        yield from vector(2 * self.inner, self.bias)
        yield Tensor("conv", self.inner, self.conv)
        yield from vector(self.inner, self.conv_bias)
        yield Tensor("step", self.dt_rank + 2 * self.state, self.inner)
        yield Tensor("step_up", self.inner, self.dt_rank)
        yield from vector(self.inner)
        yield from vector(self.dt_rank + 2 * self.state, self.norms)
        yield from vector(self.inner * self.state + self.inner)
        yield Tensor("out", hidden, self.inner)
        yield from vector(hidden, self.bias)

    def state_values(self, tp: int = 1) -> int:
        return self.inner * (self.state + self.conv) // tp


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2(MixerBase):
    """A state space with one decay per head, computed in chunks as matmuls."""

    heads: int
    head_dim: int
    state: int
    groups: int = 1
    conv: int = 4
    chunk: int = 256
    conv_bias: bool = True
    bias: bool = False
    norm: bool = True
    """The gated result is normed before it leads out."""

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def conv_width(self) -> int:
        return self.inner + 2 * self.groups * self.state

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        yield Tensor("in", self.inner + self.conv_width + self.heads, hidden)
        yield from vector(self.inner + self.conv_width + self.heads, self.bias)
        yield Tensor("conv", self.conv_width, self.conv)
        yield from vector(self.conv_width, self.conv_bias)
        yield from vector(3 * self.heads)
        yield from vector(self.inner, self.norm)
        yield Tensor("out", hidden, self.inner)
        yield from vector(hidden, self.bias)

    def state_values(self, tp: int = 1) -> int:
        return (self.inner * self.state + self.conv_width * self.conv) // tp


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedDelta(MixerBase):
    """Linear attention by the gated delta rule, with a short convolution before it."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int = 4

    @property
    def conv_width(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        values = self.value_heads * self.value_dim
        yield Tensor("in", self.conv_width + values, hidden)
        yield Tensor("decay", 2 * self.value_heads, hidden)
        yield Tensor("conv", self.conv_width, self.conv)
        yield from vector(2 * self.value_heads + self.value_dim)
        yield Tensor("out", hidden, values)

    def state_values(self, tp: int = 1) -> int:
        return (self.value_heads * self.key_dim * self.value_dim + self.conv_width * self.conv) // tp


@dataclass(frozen=True, slots=True, kw_only=True)
class LightningAttention(MixerBase):
    """Linear attention with a fixed decay per head, computed in blocks, gated and normed."""

    heads: int
    head_dim: int
    block: int = 256

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        width = self.heads * self.head_dim
        yield Tensor("in", 3 * width, hidden)
        yield Tensor("out_gate", width, hidden)
        yield from vector(width)
        yield Tensor("out", hidden, width)

    def state_values(self, tp: int = 1) -> int:
        return self.heads * self.head_dim**2 // tp


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConvolution(MixerBase):
    """A gated convolution over the last few tokens."""

    width: int
    conv: int = 3
    bias: bool = False

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        yield Tensor("in", 3 * self.width, hidden)
        yield from vector(3 * self.width, self.bias)
        yield Tensor("conv", self.width, self.conv)
        yield from vector(self.width, self.bias)
        yield Tensor("out", hidden, self.width)
        yield from vector(hidden, self.bias)

    def state_values(self, tp: int = 1) -> int:
        return self.width * self.conv // tp
