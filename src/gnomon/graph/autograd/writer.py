"""Writes nodes of a tape, and the sizes of the tensors they name: what all parts of a network are made of.

Tensor-parallel ranks hold a part of every matrix. With sequence parallelism they also hold a part of the tokens
between the matrices: an all-gather and a reduce-scatter then stand where an all-reduce stood.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace

from gnomon.graph.autograd.cut import Cut
from gnomon.graph.dtypes import width
from gnomon.graph.ops import TOKENS, Collective, Elementwise, Gemm, Op, Rows, Size
from gnomon.graph.style import KernelStyle, Stream
from gnomon.graph.tape import RESULT, SOURCE, TapeNode
from gnomon.spec import Model

WIDE = 4.0
"""Bytes of a value of a wide residual stream."""
NARROW = ".narrow"
"""Names the copy of a tensor that GEMMs read, where they run in a narrower format."""


class Writer:
    """`value` is bytes of an activation, `stream` bytes per token of the residual stream on this rank."""

    def __init__(self, model: Model, cut: Cut, style: KernelStyle) -> None:
        self.model, self.cut, self.style = model, cut, style
        self.value = width(cut.dtype)
        self.matrix = cut.matrix or cut.dtype
        self.wide = WIDE / self.value if style.wide_stream else 1.0
        self.stream = model.hidden * self.value * self.wide * cut.share
        self.sizes: dict[str, float] = {SOURCE: self.stream, RESULT: self.stream}

    def norm(self, name: str, read: str, written: str, shared: bool = True) -> TapeNode:
        """A norm over the stream. What it reads is shared with the residual stream, whose gradient is added."""
        hidden, sizes = self.model.hidden, {written: self.model.hidden * self.wide * self.cut.share}
        node = self.elementwise(name, self.style.norm, hidden, (read,), sizes, True, self.cut.rows)
        node = self.widened(node, hidden * self.cut.share)
        if shared:
            node = replace(node, by_input=node.by_input + self.total(name, hidden, self.cut.rows))
        return replace(node, parameters=hidden * (self.model.norm_weight + self.model.norm_bias))

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
        """Into the matrices: with sequence parallelism the ranks' tokens are gathered, else copied; the gradient is
        scattered or summed. `values` where it is not the stream."""
        values = values or self.model.hidden
        if self.cut.tp == 1:
            return read
        if not self.cut.sequence_parallel:
            back = self.exchange(f"{part}.enter.by_input", "all_reduce", values * self.value)
            yield TapeNode(name=f"{part}.enter", by_input=(back,), beside=self._beside(part))
            return read
        whole = f"{read}.whole"
        self.sizes[whole] = values * self.value
        again = "" if self.style.keeps_gathered else "all_gather"
        node = self.collective(f"{part}.enter", "all_gather", "reduce_scatter", (read,), (whole,), again, values)
        yield replace(node, beside=self._beside(part))
        return whole

    def _beside(self, part: str) -> tuple[str, ...]:
        if not self.style.overlap_by_weight:
            return ()
        gemms = {"attention": ("qkv", "q", "k", "v"), "ffn": ("up", "gate"), "head": ("logits",)}
        return tuple(f"{part}.{name}" for name in gemms.get(part, ("up", "gate")))

    def leave(self, part: str, read: str, beside: str, written: str) -> Iterator[TapeNode]:
        """Out of the matrices and onto the residual stream."""
        summed = yield from self.summed(part, read)
        yield self.residual(part, summed, beside, written)

    def summed(self, part: str, read: str) -> Generator[TapeNode, None, str]:
        """Partial sums of the tensor-parallel ranks, reduced."""
        if self.cut.tp == 1:
            return read
        self.sizes[f"{part}.summed"] = self.stream
        there, back = ("reduce_scatter", "all_gather") if self.cut.sequence_parallel else ("all_reduce", "")
        yield self.collective(f"{part}.leave", there, back, (read,), (f"{part}.summed",))
        return f"{part}.summed"

    def residual(self, part: str, read: str, beside: str, written: str) -> TapeNode:
        hidden, rows, style = self.model.hidden, self.cut.rows, self.style
        if style.dropout:
            self.sizes[f"{part}.mask"] = hidden * self.cut.share
        sizes = {written: hidden * self.wide * self.cut.share}
        node = self.elementwise(f"{part}.residual", style.residual, hidden, (beside, read), sizes, False, rows)
        mask = (f"{part}.mask",) if style.dropout else ()
        return replace(node, passes_on=True, writes=node.writes + mask, keeps=mask)

    def linears(self, part: str, read: str, widths: dict[str, int], k: int, bias: bool) -> Iterator[TapeNode]:
        """Several matrices that read the same input: one GEMM, or one each, whose gradients are added."""
        if self.style.joined:
            name = "qkv" if part == "attention" else "up"
            yield self.linear(f"{part}.{name}", (read,), widths, k, bias)
            return
        for place, (written, n) in enumerate(widths.items()):
            node = self.linear(f"{part}.{written}", (read,), {written: n}, k, bias)
            yield replace(node, by_input=node.by_input + self.total(f"{part}.{written}", k)) if place else node

    def linear(
        self, name: str, reads: tuple[str, ...], widths: dict[str, int], k: int, bias: bool, rows: Rows = TOKENS,
        dtype: str = "",
    ) -> TapeNode:  # fmt: skip
        """A weight matrix. `dtype` where it is not the one of the other GEMMs."""
        dtype, n = dtype or self.matrix, sum(widths.values())
        self.sizes |= {written: size * self.value * rows.factor for written, size in widths.items()}
        kept = reads if self.style.keeps_gathered else tuple(read.removesuffix(".whole") for read in reads)
        back = self.style.gradient_dtype
        node = TapeNode(
            name=name,
            forward=(Gemm(name=name, m=rows, n=n, k=k, dtype=dtype),),
            by_input=(Gemm(name=f"{name}.by_input", m=rows, n=k, k=n, dtype=dtype),),
            by_weight=(Gemm(name=f"{name}.by_weight", m=n, n=k, k=rows, dtype=dtype, out_dtype=back),),
            reads=reads,
            writes=tuple(widths),
            keeps=kept,
            parameters=n * k + n * bias,
        )
        if self.style.wide_stream and self.sizes[reads[0]] >= WIDE * k:
            return self.autocast(node, k, rows)
        return self.narrowed(node, n, k, rows) if width(dtype) < self.value else node

    def autocast(self, node: TapeNode, k: float, rows: Rows) -> TapeNode:
        """The input narrowed for this GEMM alone, which saves the copy; its gradient widened again."""
        copy = f"{node.name}.cast"
        self.sizes[copy] = k * self.value * rows.factor
        return replace(
            node,
            forward=(self._stream(copy, k, self.style.widen.backward, rows), *node.forward),
            by_input=(*node.by_input, self._stream(f"{copy}.by_input", k, self.style.widen, rows)),
            writes=(*node.writes, copy),
            keeps=(copy,),
        )

    def narrowed(self, node: TapeNode, n: float, k: float, rows: Rows) -> TapeNode:
        """Operands in a narrower format: the input and the gradient of the result are each cast and transposed; the
        copy for the gradient of the weight is saved."""
        (kept,) = node.keeps
        narrow, style = width(self.matrix), self.style
        self.sizes[kept + NARROW] = self.sizes[kept] / self.value * narrow
        share = narrow / self.value
        turned = self._stream(f"{node.name}.transpose", k, Stream(share, share, 0, 0), rows)
        return replace(
            node,
            forward=(self._stream(f"{node.name}.cast", k, style.cast, rows), *node.forward),
            by_input=(self._stream(f"{node.name}.cast.by_input", n, style.cast.backward, rows), *node.by_input),
            by_weight=(turned, *node.by_weight) if style.late_transpose else node.by_weight,
            writes=(*node.writes, kept + NARROW),
            keeps=(kept + NARROW,),
            narrow_parameters=node.parameters,
        )

    def total(self, name: str, values: float, rows: Size = TOKENS) -> tuple[Op, ...]:
        """The second gradient of a tensor is added to the first."""
        return (self._stream(f"{name}.total", values, self.style.total, rows),)

    def gate(
        self, part: str, inner: float, read: tuple[str, str], written: str, rows: Rows = TOKENS
    ) -> Iterator[TapeNode]:
        """A gated activation. Sizes are per row."""
        if self.style.fused_activation:
            yield self.rowed(f"{part}.activation", self.style.gated, inner, read, written, True, rows)
            return
        bent = "bent" if part == "ffn" else f"{part}.bent"
        yield self.rowed(f"{part}.activation", self.style.gated, inner, read[:1], bent, True, rows)
        yield self.rowed(f"{part}.product", self.style.product, inner, (bent, read[1]), written, True, rows)

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
        return TapeNode(
            name=name,
            forward=(self._stream(name, values, stream, rows),),
            by_input=(self._stream(f"{name}.by_input", values, stream.backward, rows),),
            reads=reads,
            writes=tuple(writes),
            keeps=reads if keeps else (),
            cheap=self.style.stop_early,
        )

    def _stream(self, name: str, values: float, stream: Stream, rows: Size) -> Elementwise:
        size = values * self.value / stream.kernels
        return Elementwise(
            name=name, rows=rows, read_per_row=stream.reads * size, written_per_row=stream.writes * size,
            count=stream.kernels, efficiency=stream.efficiency,
        )  # fmt: skip

    def exchange(self, name: str, op: str, bytes_per_row: float, ranks: int = 0, stride: int = 1) -> Collective:
        """A collective among tensor-parallel ranks, unless others are given."""
        ranks = ranks or self.cut.tp
        return Collective(name=name, op=op, rows=TOKENS, bytes_per_row=bytes_per_row, ranks=ranks, stride=stride)  # type: ignore[arg-type]

    def collective(
        self, name: str, there: str, back: str, reads: tuple[str, ...], writes: tuple[str, ...], again: str = "",
        values: int = 0,
    ) -> TapeNode:  # fmt: skip
        size = (values or self.model.hidden) * self.value
        gradient = (self.exchange(f"{name}.by_input", back, size),) if back else ()
        regather = (self.exchange(f"{name}.again", again, size),) if again else ()
        return TapeNode(
            name=name,
            forward=(self.exchange(name, there, size),),
            by_input=regather + gradient,
            reads=reads,
            writes=writes,
            passes_on=not back,
            cheap=self.style.stop_early,
        )
