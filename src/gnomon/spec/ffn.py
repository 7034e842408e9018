"""Feed-forwards: dense, or a router and experts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.spec.parts import Tensor, count, vector


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFfn:
    """Two matrices, or three when gated."""

    inner: int
    gated: bool = True
    bias: bool = False

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        for role in ("gate", "up") if self.gated else ("up",):
            yield Tensor(role, self.inner, hidden)
            yield from vector(self.inner, self.bias)
        yield Tensor("down", hidden, self.inner)
        yield from vector(hidden, self.bias)

    def parameters(self, hidden: int) -> int:
        return count(self.tensors(hidden))

    def active_parameters(self, hidden: int) -> int:
        return self.parameters(hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeFfn:
    """A router and experts, of which each token visits `topk`, and perhaps some that every token visits."""

    experts: int
    topk: int
    inner: int
    shared_inner: int = 0
    """Width of the shared experts together."""
    gated: bool = True
    bias: bool = False
    """On the matrices of the experts."""
    shared_gate: bool = False
    """A learned score a token weighs the shared experts with."""
    router: str = "softmax"
    """How scores become shares: softmax, or sigmoid."""
    router_bias: bool = False
    router_dtype: str = ""
    """The number format that scores are computed in, where it is not that of the stream."""
    correction: bool = False
    """A learned number an expert is added to its score, where it is a weight of its own."""
    groups: int = 1
    topk_groups: int = 1
    """Experts stand in groups, and are chosen from the best of these only."""
    latent: int = 0
    """Experts work on so many channels, folded from the stream and unfolded again; 0 where they work on all."""

    def tensors(self, hidden: int) -> Iterator[Tensor]:
        yield from self._router(hidden)
        yield from self._matrices("expert", self.inner, self.latent or hidden, self.experts)
        yield from self._matrices("shared", self.shared_inner, hidden, 1)
        if self.latent:
            yield Tensor("fold", self.latent, hidden)
            yield Tensor("unfold", hidden, self.latent)

    def parameters(self, hidden: int) -> int:
        return count(self.tensors(hidden))

    def active_parameters(self, hidden: int) -> int:
        resting = count(self._matrices("expert", self.inner, self.latent or hidden, self.experts - self.topk))
        return self.parameters(hidden) - resting

    def _router(self, hidden: int) -> Iterator[Tensor]:
        yield Tensor("router", self.experts, hidden)
        yield from vector(self.experts, self.router_bias)
        yield from vector(self.experts, self.correction)
        if self.shared_gate:
            yield Tensor("shared_score", 1, hidden)

    def _matrices(self, part: str, inner: int, hidden: int, copies: int) -> Iterator[Tensor]:
        if not inner or not copies:
            return
        bias = self.bias and part == "expert"
        for role in ("gate", "up") if self.gated else ("up",):
            yield Tensor(f"{part}_{role}", inner, hidden, copies)
        yield Tensor(f"{part}_down", hidden, inner, copies)
        up = 2 if self.gated else 1
        yield from vector(copies * (up * inner + hidden), bias)
