"""What fine-tuning with low-rank adapters makes of a network's operators: weights that are frozen, packed in 4 bits or
not, and two thin matrices beside those that are adapted."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gnomon.engines.training import Traits
from gnomon.engines.training.adapters import AdapterStyle
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.wide import is_wide
from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import Elementwise, Gemm, Op, Rows
from gnomon.graph.passes.freeze import freeze
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.techniques.base import Parameter, Rejection

ALL, ATTENTION, QKV, QV = "all-linear", "attention", "qkv", "qv"
HALF: Final = 2.0
SUMMED = ("out", "down", "shared_down")
"""The last words of matrices whose rows tensor-parallel ranks share out, so that each has a partial result."""
NAMED = {QKV: ("q", "k", "v", "qkv"), QV: ("q", "v")}
NEVER = ("attention.index", "ffn.router", "ffn.shared_score", "mtp.")
"""Beginnings of the names of matrices that no library takes for linear layers of the decoder."""
BLOCK, SCALES_BLOCK = 64, 256
"""Weights that share a scale, and scales that share one where they are quantised too (bitsandbytes' defaults)."""
NF4_EFFICIENCY = 0.62
"""Of bitsandbytes' kernel that dequantises, relative to a plain one: fitted to matrices from 11008 x 4096 to
28672 x 8192 on an H200 (`measurements/h200-2026-11-19-finetune`), within 2% for each of them."""
COPIED, SCALED = Stream(1, 1, 0, 0), Stream(1, 1, 1, 1)
DROPPED = Stream(1, 1.5, 1.5, 1)
"""Dropout with a mask of one byte per value."""

RANK = Parameter("rank", "of the two matrices", default=16.0, low=1.0, high=1024.0, whole=True)
TARGETS = Parameter(
    "targets",
    "the matrices that have adapters: all linear layers of the decoder, those of attention, queries, keys and values, "
    "or queries and values",
    default=ALL,
    choices=(ALL, ATTENTION, QKV, QV),
)
DROPOUT = Parameter("dropout", "share of an adapter's inputs that is dropped", default=0.0, high=0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPass:
    """A pass over the operators of a network."""

    style: AdapterStyle
    rank: int
    targets: str = ALL
    dropout: float = 0.0
    packed: bool = False
    """Matrices of the decoder are in nf4."""
    double: bool = False
    """And their scales in eight bits."""
    magnitudes: bool = False
    """Adapters are decomposed into direction and magnitude."""

    def __call__(self, part: str, nodes: list[TapeNode], writer: Writer) -> list[TapeNode]:
        found = freeze(nodes, writer, first=part == "embedding")
        if part == "embedding" or (part == "head" and not self.style.head):
            return found
        return [new for node in found for new in self._beside(part, node, writer)]

    def _beside(self, part: str, node: TapeNode, writer: Writer) -> Iterator[TapeNode]:
        """A node, packed where it is, with its adapter."""
        gemm = _matrix(node)
        if gemm is None:
            yield node
            return
        base = self._pack(node, gemm) if self.packed and part == "layer" and gemm.batch == 1 else node
        if self._is_target(part, node, gemm):
            yield from _Adapted(self, writer, node, gemm).nodes(base)
        else:
            yield base

    def _is_target(self, part: str, node: TapeNode, gemm: Gemm) -> bool:
        if part == "head":
            return self.targets == ALL
        if gemm.batch != 1 and not (self.style.shared_by_experts and node.experts):
            return False
        within, last = node.name.split(".", 1)[0], node.name.rpartition(".")[2]
        if node.name.startswith(NEVER):
            return False
        if self.targets in NAMED:
            return within == "attention" and last in NAMED[self.targets]
        return self.targets == ALL or within in ("attention", "mixer", "cross")

    def _pack(self, node: TapeNode, gemm: Gemm) -> TapeNode:
        """In nf4, dequantised for the GEMM and for that of its gradient, neither of which keeps the copy."""
        assert isinstance(gemm.n, int) and isinstance(gemm.k, int)
        weights = float(gemm.n * gemm.k)
        back = f"{gemm.name}.by_input"
        given = (*self._unpacked(back, weights), replace(gemm, name=back, n=gemm.k, k=gemm.n))
        return replace(
            node,
            forward=(*self._unpacked(gemm.name, weights), gemm),
            dgrad=() if node.detached else given,
            packed_bytes=nf4_bytes(weights, self.double) + HALF * (node.parameters - weights),
            unpacked_bytes=HALF * weights,
        )

    def _unpacked(self, name: str, weights: float) -> Iterator[Op]:
        scales = weights / BLOCK
        if self.double:
            # Widened by one kernel, and their mean added by another.
            yield Elementwise(
                name=f"{name}.scales", rows=1, read_per_row=2.5 * scales, written_per_row=4 * scales, count=2
            )
        yield Elementwise(
            name=f"{name}.unpack", rows=1, read_per_row=weights / 2 + 4 * scales, written_per_row=HALF * weights,
            efficiency=NF4_EFFICIENCY, cached=False,
        )  # fmt: skip


def nf4_bytes(weights: float, double: bool) -> float:
    """Bytes of a matrix in nf4: half a byte each, and an fp32 scale for each block of 64, which with double
    quantisation is a byte, with an fp32 scale for 256 of them."""
    each = 1 / BLOCK + 4 / (BLOCK * SCALES_BLOCK) if double else 4 / BLOCK
    return weights * (0.5 + each)


def _matrix(node: TapeNode) -> Gemm | None:
    """The GEMM of a node with a matrix of weights."""
    gemm = next((op for op in node.forward if isinstance(op, Gemm)), None)
    return gemm if gemm and node.parameters and isinstance(gemm.n, int) and isinstance(gemm.k, int) else None


def _widened_and_narrowed(widen: Stream) -> Stream:
    """Of an input that becomes fp32 and then 16 bits again, and of its gradient, which does the same."""
    there = (widen.reads, widen.writes, widen.efficiency)
    back = (widen.gradient_reads, widen.gradient_writes, widen.gradient_efficiency)
    return Stream.chain(there, back).gradient(there, back)


class _Adapted:
    """One matrix and what stands beside it."""

    def __init__(self, how: AdapterPass, writer: Writer, node: TapeNode, gemm: Gemm) -> None:
        assert isinstance(gemm.n, int) and isinstance(gemm.k, int) and isinstance(gemm.m, Rows)
        assert isinstance(gemm.batch, int)
        self.how, self.style, self.writer, self.node = how, how.style, writer, node
        self.n, self.k, self.name = gemm.n, gemm.k, node.name
        self.rows = Rows(gemm.m.of, gemm.m.factor * gemm.batch)
        self.tp = writer.cut.tp if gemm.batch == 1 and self.rows.factor == 1 else 1
        self.summed = self.name.rpartition(".")[2] in SUMMED
        self.split = self.tp if self.style.gathers else 1

    def nodes(self, base: TapeNode) -> Iterator[TapeNode]:
        """The frozen matrix, then the adapter, then both results added."""
        made = self.node.writes
        self.writer.sizes |= {f"{name}.{of}": self.writer.sizes[name] for name in made for of in ("frozen", "low_rank")}
        yield replace(base, writes=tuple(f"{name}.frozen" for name in made))
        read = yield from self._input()
        low = yield from self._down(read)
        yield from self._up(low)
        if self.how.magnitudes:
            yield self._norm()
        for name in made:
            yield from self._added(name)

    def _stream(
        self, what: str, stream: Stream, values: float, reads: tuple[str, ...], written: str,
        keeps: tuple[str, ...] = (),
    ) -> TapeNode:  # fmt: skip
        """An elementwise operator of `values` per row; what is written has its size already, or gets it."""
        writer, known = self.writer, dict(self.writer.sizes)
        node = writer.rowed(f"{self.name}.{what}", stream, values, reads, written, False, self.rows)
        if written in known:
            writer.sizes[written] = known[written]
        return replace(node, keeps=keeps)

    def _held(self, node: TapeNode) -> TapeNode:
        """Each rank of experts has an adapter for those that it holds."""
        return replace(node, experts=node.parameters if self.node.experts else 0.0)

    def _input(self) -> Generator[TapeNode, None, str]:
        """What the adapter reads: the matrix's own input, a copy that was widened and narrowed, or what dropout leaves
        of either."""
        (read,), how, style = self.node.reads, self.how, self.style
        if style.casts_input and (style.nf4_casts_input or not how.packed) and self.writer.value == HALF:
            copy = f"{self.name}.input"
            node = self._stream("cast", _widened_and_narrowed(self.writer.style.widen), self.k, (read,), copy)
            yield replace(node, scratch=2 * self.writer.sizes[copy], gradient_scratch=2 * self.writer.sizes[copy])
            read = copy
        if how.dropout:
            left, mask = f"{self.name}.left", f"{self.name}.mask"
            node = self._stream("dropout", DROPPED, self.k, (read,), left)
            self.writer.sizes[mask] = self.writer.sizes[left] / self.writer.value
            yield replace(node, writes=(left, mask), keeps=(mask,))
            read = left
        return read

    def _down(self, read: str) -> Generator[TapeNode, None, str]:
        """To the rank. Ranks that share out its rows gather it, those that share out its input sum it."""
        width = self.how.rank // (self.split if not self.summed else 1)
        low, writer = f"{self.name}.low", self.writer
        keeps: tuple[str, ...] = (read,)
        if read == self.node.reads[0] and self.node.keeps:
            keeps = tuple(dict.fromkeys((read, *self.node.keeps))) if self.style.keeps_gathered else self.node.keeps
        node = writer.linear(f"{self.name}.lora_a", "", read, {low: width}, self.k, self.rows, dtype=writer.cut.dtype)
        yield self._held(replace(node, keeps=keeps))
        if self.tp > 1 and self.style.gathers:
            size = self.how.rank * writer.value
            writer.sizes[f"{low}.whole"] = size
            kind = "all_reduce" if self.summed else "all_gather"
            found = writer.exchange(f"{self.name}.lora_a.leave", kind, size)
            yield TapeNode(name=found.name, forward=(found,), reads=(low,), writes=(f"{low}.whole",),
                           cheap=writer.style.stop_early)  # fmt: skip
            low = f"{low}.whole"
        elif self.tp > 1 and not self.summed:
            back = writer.exchange(f"{self.name}.lora_b.enter.by_input", "all_reduce", self.how.rank * writer.value)
            yield TapeNode(name=f"{self.name}.lora_b.enter", dgrad=(back,))
        if not self.style.scales_result:
            yield self._stream("scale", SCALED, self.how.rank, (low,), f"{low}.scaled")
            low = f"{low}.scaled"
        return low

    def _up(self, low: str) -> Iterator[TapeNode]:
        """To the width of the result."""
        made, writer = self.node.writes, self.writer
        gathered = self.summed and self.split > 1
        n = self.n // (self.split if gathered else 1)
        node = writer.linear(
            f"{self.name}.lora_b", "", low, {f"{self.name}.up": n}, self.how.rank, self.rows, dtype=writer.cut.dtype
        )
        node = self._held(replace(node, keeps=(low,)))
        if not gathered:
            yield replace(node, writes=tuple(f"{name}.low_rank" for name in made))
            return
        yield node
        there = writer.exchange(f"{self.name}.lora_b.leave", "all_gather", self.n * writer.value)
        # What is gathered is the sum already: with sequence parallelism a rank takes its tokens of it.
        back = (replace(there, name=f"{there.name}.by_input"),) if writer.cut.sequence_parallel else ()
        yield TapeNode(
            name=there.name, forward=(there,), dgrad=back or (), reads=(f"{self.name}.up",),
            writes=tuple(f"{name}.low_rank" for name in made), cheap=writer.style.stop_early, passes_on=not back,
        )  # fmt: skip

    def _norm(self) -> TapeNode:
        """The norm of each row of the sum of both matrices, anew in every forward pass and without a gradient."""
        weights, dtype = self.n * self.k, self.writer.cut.dtype
        product = Gemm(name=f"{self.name}.product", m=self.n, n=self.k, k=self.how.rank, dtype=dtype)
        forward: list[Op] = [product]
        if self.style.dora_saves > 1:  # the product is taken by both layers of an identity
            down = Gemm(name=f"{self.name}.identity", m=self.k, n=self.how.rank, k=self.k, dtype=dtype)
            forward = [down, replace(product, m=self.k, n=self.n)]
        if self.how.packed:
            forward += self.how._unpacked(f"{self.name}.norm", weights)
        forward += self._normed(HALF * weights)
        room = HALF * weights * (3 + self.how.packed)
        return TapeNode(
            name=f"{self.name}.norm", forward=tuple(forward), frozen=True, detached=True, unpacked_bytes=room
        )

    def _normed(self, size: float) -> Iterator[Op]:
        """The product scaled, added to the matrix, and read for its norm."""
        kernels = ("scaled", 1, 1, 1.0), ("sum", 2, 1, self.style.strided), ("norm", 1, 0, 1.0)
        for name, reads, writes, efficiency in kernels:
            yield Elementwise(
                name=f"{self.name}.norm.{name}", rows=1, read_per_row=reads * size, written_per_row=writes * size,
                efficiency=efficiency, cached=False,
            )  # fmt: skip

    def _added(self, name: str) -> Iterator[TapeNode]:
        """Of one of the results: scaled, multiplied with magnitudes, and added to that of the frozen matrix."""
        writer, values = self.writer, self.writer.sizes[name] / self.writer.value / self.rows.factor
        frozen, low = f"{name}.frozen", f"{name}.low_rank"
        if self.style.scales_result:
            yield self._stream(f"scale.{name}", SCALED, values, (low,), f"{low}.scaled")
            low = f"{low}.scaled"
        if self.how.packed and self.style.nf4_clones:
            yield self._passing(f"clone.{name}", COPIED, values, (frozen,), f"{frozen}.copy")
            frozen = f"{frozen}.copy"
        if not self.how.magnitudes:
            yield self._passing(f"add.{name}", writer.style.total, values, (frozen, low), name)
        elif self.style.dora_saves > 1:
            turned = f"{low}.turned"
            node = self._stream(f"magnitude.{name}", self.style.magnitudes, values, (low,), turned, (low,))
            yield replace(node, parameters=values)
            yield self._stream(
                f"magnitude.{name}.frozen", self.style.magnitudes, values, (frozen,), f"{frozen}.turned", (frozen,)
            )
            both = f"{name}.decomposed"
            yield self._passing(f"sum.{name}", writer.style.total, values, (turned, f"{frozen}.turned"), both)
            yield self._passing(f"add.{name}", writer.style.total, values, (frozen, both), name)
        else:
            both = f"{name}.both"
            yield self._passing(f"add.{name}", writer.style.total, values, (frozen, low), both)
            node = self._stream(f"magnitude.{name}", self.style.magnitudes, values, (both,), name, (both,))
            yield replace(node, parameters=values)

    def _passing(self, what: str, stream: Stream, values: float, reads: tuple[str, ...], written: str) -> TapeNode:
        """One that hands the gradient of its result on."""
        node = self._stream(what, replace(stream, gradient_reads=0, gradient_writes=0), values, reads, written)
        return replace(node, passes_on=True, kernel=None)


def adapted(traits: Traits, dtype: str) -> Traits:
    """An engine's traits over a network whose own weights are frozen."""
    style = traits.adapters
    if style is None:
        return traits
    wide = is_wide(dtype)
    return replace(
        traits,
        style=traits.style if wide or style.kernels is None else style.kernels,
        frozen_bytes=2 * HALF if wide else style.frozen_bytes,
    )


def unsupported(case: TrainingCase, rank: int, targets: str) -> Iterator[Rejection]:
    """Why a plan cannot train adapters."""
    style, model, plans = case.traits.adapters, case.model, case.plans
    yield style is None, "the engine trains no adapters, or not in this version"
    if style is None:
        return
    yield not model.vocab, "adapters are priced in decoders over tokens"
    towers = any(not (given.frozen and given.frozen_tail) for given in model.beside)
    yield towers, "a tower learns beside the decoder: freeze it and its projector (--freeze)"
    states = case.traits.optimizers.get(case.optimizer)  # what it has not, the engine itself refuses
    newton = states is not None and states.newton_steps > 0
    yield newton, f"{case.optimizer}'s update is priced for full matrices"
    joined = (style.kernels or case.traits.style).joined
    yield targets == QV and joined, f"{style.library} adapts queries, keys and values as one matrix"
    yield model.is_moe and (plans.zero == 3), "frozen experts are not priced under ZeRO 3"
    split = np.where(style.gathers, plans.tp, 1)
    yield rank % split != 0, lambda row: f"a rank of {rank} cannot be sharded over {plans.tp[row]} ranks"


def pass_of(case: TrainingCase, values: Mapping[str, Any], **more: Any) -> AdapterPass | None:
    """The pass that an engine's library of adapters makes; None where it has none."""
    style = case.traits.adapters
    if style is None:
        return None
    shape = {"rank": int(values["rank"]), "targets": str(values["targets"]), "dropout": float(values["dropout"])}
    return AdapterPass(style=style, **shape, **more)  # type: ignore[arg-type]
