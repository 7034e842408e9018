"""Writes the operators of a layer, and the sizes of the tensors they name: what all parts of a network are made of.

Tensor-parallel ranks hold a part of every matrix. With sequence parallelism they also hold a part of the tokens
between the matrices: an all-gather and a reduce-scatter then stand where an all-reduce stood.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from math import gcd

from gnomon.graph.dtypes import width
from gnomon.graph.formats import gemm_dtype
from gnomon.graph.layers.cut import Cut
from gnomon.graph.ops import ROW_BYTES, TOKENS, Collective, Gemm, Op, Rows, Size
from gnomon.graph.streams import streamed
from gnomon.graph.style import KernelStyle, Stream
from gnomon.graph.tape import RESULT, SOURCE, TapeNode
from gnomon.spec import AttentionMixer, Model
from gnomon.spec.formats import Format, Formats

WIDE = 4.0
"""Bytes of a value of a wide residual stream."""
HALF = 2.0
"""Bytes of a value of 16 bits."""

READERS = ("", "_up", "_gate", ".qkv", ".q", ".k", ".v", ".up", ".gate", ".in", ".logits")
"""What follows the name of a part in those of the GEMMs that read what its tensor-parallel ranks gather."""


def bare(*ops: Op) -> Iterator[TapeNode]:
    """Operators of a mixer over a cache, which has no gradients."""
    return (TapeNode(name=op.name, forward=(op,)) for op in ops)


class Writer:
    """`value` is bytes of an activation, `stream` bytes per token of the residual stream on this rank."""

    def __init__(self, model: Model, cut: Cut, style: KernelStyle, formats: Formats = ()) -> None:
        self.model, self.cut, self.style = model, cut, style
        self.value = width(cut.dtype)
        self.wide = WIDE / self.value if style.wide_stream else 1.0
        self.out = "fp32" if self.value == WIDE else "bf16"
        """The format of what a GEMM gives, by its bytes."""
        self.stream = model.hidden * self.value * self.wide * cut.share
        self.sizes: dict[str, float] = {SOURCE: self.stream, RESULT: self.stream}
        self.vector = ""
        """What was made last of one row for each sequence."""
        self._formats, self._shard = dict(formats), dict[str, str]()

    def dtype_of(self, role: str) -> str:
        """The format of the GEMM with a matrix, by its role (`spec.parts.Tensor`). A shared expert's matrices have
        roles of their own beside those of a dense feed-forward."""
        stored = self.stored(role) or self.stored(f"shared_{role}")
        return gemm_dtype(stored) if stored else self.cut.matrix or self.cut.dtype

    def stored(self, role: str) -> Format | None:
        """The format of a matrix, where it is not that of most."""
        return self._formats.get(role)

    def norm(self, name: str, read: str, written: str, stream: Stream | None = None) -> TapeNode:
        """A norm over the residual stream."""
        hidden, sizes = self.model.hidden, {written: self.model.hidden * self.wide * self.cut.share}
        node = self.elementwise(name, stream or self.style.norm, hidden, (read,), sizes, True, self.cut.rows)
        return replace(self.widened(node, hidden * self.cut.share), parameters=float(self.model.norm_parameters))

    def widened(self, node: TapeNode, values: float) -> TapeNode:
        """A norm that saves copies of its own instead of its input, where an engine writes it as plain operators. A
        wide input needs no copy, and what the weight multiplies is wide then."""
        if self.style.norm_saves is None:
            return node
        copies = f"{node.name}.copies"
        own = tuple(read for read in node.reads if self.sizes[read] >= WIDE * values)
        saved = self.style.norm_saves if not own else WIDE / self.value
        self.sizes[copies] = values * self.value * saved
        return replace(node, writes=(*node.writes, copies), keeps=(*own, copies))

    def enter(self, part: str, read: str, values: int = 0) -> Generator[TapeNode, None, str]:
        """Into the matrices: with sequence parallelism the ranks' tokens are gathered, else copied, so that their
        gradients are summed. `values` where it is not the stream."""
        values = values or self.model.hidden
        if self.cut.tp == 1:
            return read
        if not self.cut.sequence_parallel:
            back = self.exchange(f"{part}.enter.by_input", "all_reduce", values * self.value)
            yield TapeNode(name=f"{part}.enter", dgrad=(back,), beside=self._beside(part))
            return read
        whole = f"{read}.whole" if f"{read}.whole" not in self.sizes else f"{part}.whole"
        self.sizes[whole], self._shard[whole] = values * self.value, read
        node = self.collective(f"{part}.enter", "all_gather", (read,), (whole,), values)
        yield replace(node, beside=self._beside(part))
        return whole

    def gathered(self, name: str) -> str:
        """A tensor as `enter` has left it."""
        return f"{name}.whole" if f"{name}.whole" in self.sizes else name

    def _beside(self, part: str) -> tuple[str, ...]:
        if not self.style.overlap_by_weight:
            return ()
        return tuple(f"{part}{name}" for name in READERS)

    @cached_property
    def distances(self) -> bool:
        """Whether learned distances are added to scores, as a mask is: the first layer holds the table for all."""
        mixers = (block.mixer for block in self.model.blocks)
        return any(isinstance(one, AttentionMixer) and one.relative_buckets for one in mixers)

    def summed(self, part: str, read: str, name: str = "") -> Generator[TapeNode, None, str]:
        """Partial sums of the tensor-parallel ranks, reduced."""
        if self.cut.tp == 1:
            return read
        self.sizes[f"{part}.summed"] = self.stream
        kind = "reduce_scatter" if self.cut.sequence_parallel else "all_reduce"
        name = name or (f"{part}.all_reduce" if self.cut.cached else f"{part}.leave")
        yield self.collective(name, kind, (read,), (f"{part}.summed",))
        return f"{part}.summed"

    def all_reduce(self, name: str, values: int) -> Iterator[TapeNode]:
        """So many values of a token that every tensor-parallel rank has a part of, inside a mixer, and all need: their
        gradients are summed too."""
        if self.cut.tp > 1:
            there, back = (self.exchange(one, "all_reduce", values * self.value) for one in (name, f"{name}.by_input"))
            yield TapeNode(name=name, forward=(there,), dgrad=(back,))

    def residual(self, part: str, read: str, beside: str, written: str) -> TapeNode:
        """Onto the residual stream."""
        hidden, rows, style = self.model.hidden, self.cut.rows, self.style
        if style.dropout:
            self.sizes[f"{part}.mask"] = hidden * self.cut.share
        sizes = {written: hidden * self.wide * self.cut.share}
        node = self.elementwise(f"{part}.residual", style.residual, hidden, (beside, read), sizes, False, rows)
        mask = (f"{part}.mask",) if style.dropout else ()
        return replace(node, passes_on=True, writes=node.writes + mask, keeps=mask)

    def linears(
        self, prefix: str, read: str, widths: dict[str, int], k: int, biases: int, joined: str, rows: Rows = TOKENS
    ) -> Iterator[TapeNode]:
        """Several matrices that read the same input: one GEMM, `joined`, or one each. The key of a width is the
        tensor's name, and its last word the matrix's role; `biases` is how many numbers are added."""
        roles = {name: name.rpartition(".")[2] for name in widths}
        if self.style.joined:
            node = self.linear(f"{prefix}{joined}", roles[next(iter(widths))], read, widths, k, rows)
            yield replace(node, parameters=node.parameters + biases)
            return
        total = sum(widths.values())
        for name, n in widths.items():
            node = self.linear(f"{prefix}{roles[name]}", roles[name], read, {name: n}, k, rows)
            yield replace(node, parameters=node.parameters + biases * n / total)

    def linear(
        self, name: str, role: str, read: str, widths: dict[str, int], k: int, rows: Rows = TOKENS, bias: bool = False,
        dtype: str = "",
    ) -> TapeNode:  # fmt: skip
        """A weight matrix. `dtype` where it is not the one of its role."""
        n = sum(widths.values())
        each = self.value * self.cut.per_token(rows)
        self.sizes |= {written: size * each for written, size in widths.items()}
        kept = read if self.style.keeps_gathered else self._shard.get(read, read)
        return TapeNode(
            name=name,
            forward=(Gemm(name=name, m=rows, n=n, k=k, dtype=dtype or self.dtype_of(role), out_dtype=self.out),),
            reads=(read,),
            writes=tuple(widths),
            keeps=(kept,),
            parameters=n * k + n * bias,
        )

    def as_stored(self, node: TapeNode) -> TapeNode:
        """A matrix whose rows begin where they do in plain code, as logits of an odd vocabulary. Training frameworks
        pad them, and kernels of plain fp32 do not mind."""
        (gemm,) = node.forward
        assert isinstance(gemm, Gemm) and isinstance(gemm.n, int) and isinstance(gemm.k, int)
        if not self.cut.inference or width(gemm.dtype) > HALF:
            return node
        inner, outer = (gcd(ROW_BYTES, int(size * HALF)) for size in (gemm.k, gemm.n))
        return replace(node, forward=(replace(gemm, aligned=inner, out_aligned=outer),))

    def gate(
        self, prefix: str, inner: float, read: tuple[str, str], written: str, rows: Rows = TOKENS
    ) -> Iterator[TapeNode]:
        """A gated activation. Sizes are per row."""
        if self.style.fused_activation:
            yield self.rowed(f"{prefix}activation", self.style.gated, inner, read, written, True, rows)
            return
        bent = "bent" if prefix == "ffn." else f"{prefix}bent"
        yield self.rowed(f"{prefix}activation", self.style.gated, inner, read[:1], bent, True, rows)
        yield self.rowed(f"{prefix}product", self.style.product, inner, (bent, read[1]), written, True, rows)

    def rowed(
        self, name: str, stream: Stream, values: float, reads: tuple[str, ...], written: str, keeps: bool, rows: Rows
    ) -> TapeNode:
        """An elementwise operator over rows that are not one per token, as wide as what it writes."""
        return self.elementwise(name, stream, values, reads, {written: values * rows.factor}, keeps, rows)

    def elementwise(
        self, name: str, stream: Stream, values: float, reads: tuple[str, ...], writes: Mapping[str, float],
        keeps: bool, rows: Size = TOKENS,
    ) -> TapeNode:  # fmt: skip
        self.sizes |= {written: size * self.value for written, size in writes.items()}
        size = values * self.value
        return TapeNode(
            name=name,
            forward=(streamed(name, stream, size, rows, self.style.by_row, self.style.uncached),),
            kernel=(stream, size),
            reads=reads,
            writes=tuple(writes),
            keeps=reads if keeps else (),
            cheap=self.style.stop_early,
        )

    def exchange(self, name: str, op: str, bytes_per_row: float, ranks: int = 0, stride: int = 1) -> Collective:
        """A collective among tensor-parallel ranks, unless others are given."""
        ranks = ranks or self.cut.tp
        return Collective(name=name, op=op, rows=TOKENS, bytes_per_row=bytes_per_row, ranks=ranks, stride=stride)  # type: ignore[arg-type]

    def collective(
        self, name: str, op: str, reads: tuple[str, ...], writes: tuple[str, ...], values: int = 0
    ) -> TapeNode:
        found = self.exchange(name, op, (values or self.model.hidden) * self.value)
        return TapeNode(name=name, forward=(found,), reads=reads, writes=writes, cheap=self.style.stop_early)
