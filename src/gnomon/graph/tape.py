"""Differentiable operators: what each runs forward, what its gradients run, and which tensors they hold for that.

A tape is a part of a network (an embedding, one layer, a head) on one rank. Sizes of its tensors are bytes per
token, so that a tape is written once for any number of sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gnomon.graph.ops import Op
from gnomon.graph.style import Stream
from gnomon.spec.recompute import NONE

SOURCE, RESULT = "in", "out"
"""The names of the tensors a tape begins and ends with."""
DISPATCH, COMBINE = "ffn.dispatch", "ffn.combine"
"""Nodes that exchange tokens with experts of other ranks; what stands between them works on the rows of experts."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """Into how many chunks tokens are cut on their way to experts and back, the best of several ways, and how many
    networks carry them side by side: one, or that inside a node beside that between nodes."""

    degrees: tuple[int, ...]
    networks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TapeNode:
    """One operator of a tape. Tensors are known by name."""

    name: str
    forward: tuple[Op, ...] = ()
    dgrad: tuple[Op, ...] = ()
    """The gradient of what it reads; `passes.differentiate` derives it from the forward operators unless given."""
    wgrad: tuple[Op, ...] = ()
    """The gradient of its weights."""
    kernel: tuple[Stream, float] | None = None
    """Of one that streams memory: the engine's kernel, and bytes per row of one pass over its values."""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    """What the gradient needs, of what is read or written."""
    parameters: float = 0.0
    experts: float = 0.0
    """Of the parameters, those of experts, which fewer ranks hold copies of."""
    narrow_parameters: float = 0.0
    """Of the parameters, those that GEMMs read in a narrower format, from copies of the weights."""
    frozen: bool = False
    """Its weights are not trained: they have no gradient, and nothing is saved for one."""
    packed_bytes: float = 0.0
    """Of frozen weights in a format of their own, what they take; 0 where they are as the others."""
    unpacked_bytes: float = 0.0
    """Of such weights, what they take as GEMMs read them: they are dequantised for each use, forward and backward, and
    the copy goes with the GEMM."""
    forward_only: bool = False
    """Its weights are trained, and have no gradient: nothing runs backward."""
    detached: bool = False
    """What it reads gets no gradient from it: it is data, or cut off from the loss."""
    passes_on: bool = False
    """The gradient of what it writes is handed on to what it reads, without a copy."""
    cheap: bool = False
    """An engine's selective recomputation recomputes it rather than save what it wrote."""
    beside: tuple[str, ...] = ()
    """Nodes whose GEMMs this one's collectives of the backward pass may overlap with."""
    own_overlap: bool = False
    """Its collectives overlap with its own arithmetic, forward and backward."""
    awaited: bool = False
    """The host launches it once the device has done all that is before it."""
    captured: bool = False
    """Its kernels are replayed from a CUDA graph, and cost the host nothing."""
    busiest: float = 1.0
    """Rows of the rank that computes most, over those that all compute for tokens on average."""
    chunked: Chunking | None = None
    """How the exchange with experts that it is a part of is cut into chunks of the tokens (`passes.chunks`)."""
    scratch: float = 0.0
    """Bytes per token held only while it runs forward."""
    gradient_scratch: float = 0.0

    @property
    def gradients(self) -> tuple[str, ...]:
        """The tensors that it gives a gradient."""
        return () if self.detached else self.reads


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What of a tape is recomputed."""

    stays: frozenset[str]
    """The tensors between forward and backward."""
    parts: tuple[frozenset[str], ...] = ()
    """Nodes by name that are recomputed together, each part before the first gradient that needs what it makes."""
    at_once: bool = True
    """All of them before the first gradient of the tape instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A collective and GEMMs that run in pieces, each of which travels while the GEMMs run on another
    (`passes.pieces`)."""

    nodes: tuple[str, ...]
    """Whose they are."""
    backward: bool
    """Of the gradients by input; else forward."""
    collective: Op
    """As it is in one."""
    gemms: tuple[Op, ...]
    hop: Op
    """A piece on its way, as often as pieces come from others."""
    cut: tuple[Op, ...]
    """The GEMMs over a piece, as often as there are pieces."""
    after: tuple[Op, ...] = ()
    """What adds pieces up."""

    @property
    def ops(self) -> tuple[Op, ...]:
        """What is priced beside the operators of the nodes."""
        return (self.hop, *self.cut, *self.after)


@dataclass(frozen=True, slots=True)
class ChunkStage:
    """What a chunk runs in one lane before it goes on in another."""

    lane: str
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedExchange:
    """Tokens that go to experts and back in chunks: one travels while the experts run on another."""

    nodes: tuple[str, ...]
    """Whose operators they are."""
    backward: bool
    """Of the gradients; else forward."""
    whole: tuple[Op, ...]
    """As they are in one."""
    ways: tuple[tuple[int, tuple[ChunkStage, ...]], ...]
    """For each number of chunks, the stages of one of them."""

    @property
    def ops(self) -> tuple[Op, ...]:
        """What is priced beside the operators of the nodes."""
        return _ops(stage.ops for _, stages in self.ways for stage in stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tape:
    name: str
    nodes: tuple[TapeNode, ...]
    sizes: Mapping[str, float]
    pieces: tuple[Pieces, ...] = ()
    """Collectives that run in pieces beside GEMMs."""
    chunks: tuple[ChunkedExchange, ...] = ()
    """Exchanges with experts that run in chunks beside them."""
    recompute: Callable[[str], Recomputed] | None = field(default=None, compare=False)
    """By recomputation mode, what stays and what the backward pass recomputes; None where all that is kept stays."""

    @property
    def parameters(self) -> float:
        """Those that are trained: they have gradients, and states of the optimizer."""
        return sum(node.parameters for node in self.nodes if not node.frozen)

    @property
    def frozen_parameters(self) -> float:
        """Those that are not trained, but for packed ones."""
        return sum(node.parameters for node in self.nodes if node.frozen and not node.packed_bytes)

    @property
    def packed_bytes(self) -> float:
        """Of frozen weights in a format of their own."""
        return sum(node.packed_bytes for node in self.nodes)

    @property
    def unpacked_bytes(self) -> float:
        """Of the largest of them, while GEMMs read it."""
        return max((node.unpacked_bytes for node in self.nodes), default=0.0)

    @property
    def experts(self) -> float:
        """Of the parameters that are trained, those of experts."""
        return sum(node.experts for node in self.nodes if not node.frozen)

    @property
    def narrow_parameters(self) -> float:
        return sum(node.narrow_parameters for node in self.nodes)

    def recomputing(self, mode: str) -> Recomputed:
        if mode == NONE or self.recompute is None:
            return Recomputed(frozenset(name for node in self.nodes for name in node.keeps))
        return self.recompute(mode)

    def stays(self, mode: str) -> frozenset[str]:
        return self.recomputing(mode).stays

    def saved_activation_bytes(self, mode: str) -> float:
        """Bytes per token between forward and backward."""
        return sum(self.sizes[name] for name in sorted(self.stays(mode)))

    def recomputed(self, mode: str) -> tuple[TapeNode, ...]:
        names = frozenset().union(*self.recomputing(mode).parts)
        return tuple(node for node in self.nodes if node.name in names)

    def priced_ops(self) -> tuple[Op, ...]:
        """All that its time is made of."""
        own = _ops(node.forward + node.dgrad + node.wgrad for node in self.nodes)
        return own + _ops(one.ops for one in self.pieces) + _ops(one.ops for one in self.chunks)

    def forward_ops(self) -> tuple[Op, ...]:
        return _ops(node.forward for node in self.nodes)

    def backward_ops(self, mode: str) -> tuple[Op, ...]:
        """All the backward pass runs: what is recomputed, then the gradients of inputs and of weights."""
        again = _ops(node.forward for node in self.recomputed(mode))
        return again + _ops(node.dgrad + node.wgrad for node in reversed(self.nodes))


def _ops(parts: Iterable[tuple[Op, ...]]) -> tuple[Op, ...]:
    return tuple(op for part in parts for op in part)
