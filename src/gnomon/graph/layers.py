"""Layers as tapes: one transformer layer, the embedding and the head with its loss, on one rank.

Tensor-parallel ranks hold a part of every matrix. With sequence parallelism they also hold a part of the tokens
between the matrices: an all-gather and a reduce-scatter then stand where an all-reduce stood.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gnomon.graph.dtypes import width
from gnomon.graph.ops import PROMPT, TOKENS, Attention, Collective, Elementwise, Gemm, Op, Rows, Size
from gnomon.graph.style import Stream, Style
from gnomon.graph.tape import RESULT, SOURCE, Node, Tape
from gnomon.spec import Block, DenseFfn, Model

LSE_BYTES = 4.0
"""Fused attention keeps one fp32 number a head and token."""
LOSS_BYTES = 4.0
"""The loss is taken in fp32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """One rank's part: tensor-parallel ranks, whether they cut the sequence too, and the length of a sequence."""

    seq: int
    tp: int = 1
    sequence_parallel: bool = False
    dtype: str = "bf16"

    @property
    def share(self) -> float:
        """The part of the tokens a rank holds between the matrices."""
        return 1 / self.tp if self.sequence_parallel else 1.0

    @property
    def rows(self) -> Rows:
        return Rows("tokens", self.share)


def layer(model: Model, block: Block, cut: Cut, style: Style) -> Tape:
    """One layer, from the residual stream to the residual stream."""
    lowering = _Lowering(model, cut, style)
    nodes = [*lowering.mixer(block), *lowering.ffn(block)]
    return _tape("layer", nodes, lowering.sizes, style)


def embedding(model: Model, cut: Cut, style: Style) -> Tape:
    """Tokens to the residual stream; each rank looks up its part of the vocabulary."""
    lowering = _Lowering(model, cut, style)
    return _tape("embedding", list(lowering.embedding()), lowering.sizes, style)


def head(model: Model, cut: Cut, style: Style) -> Tape:
    """The residual stream to the loss."""
    lowering = _Lowering(model, cut, style)
    return _tape("head", list(lowering.head()), lowering.sizes, style)


def _tape(name: str, nodes: list[Node], sizes: dict[str, float], style: Style) -> Tape:
    if name != "layer":
        return Tape(name=name, nodes=tuple(nodes), sizes=sizes)
    kept = frozenset(tensor for node in nodes for tensor in node.keeps)
    products = frozenset(tensor for node in nodes if not node.cheap for tensor in node.writes)
    inside = frozenset(tensor for node in nodes if node.cheap for tensor in node.writes)
    lasting = kept & frozenset(tensor for node in nodes if not node.cheap for tensor in node.keeps)
    last = max(place for place, node in enumerate(nodes) if node.keeps)
    rerun = nodes[:last] if style.stop_early else nodes
    stored = (products | {SOURCE}) - {RESULT} if style.stop_early else lasting | (kept - inside) | {SOURCE}
    return Tape(
        name=name,
        nodes=tuple(nodes),
        sizes=sizes,
        stored={"full": frozenset({SOURCE}), "selective": frozenset(stored)},
        again={
            "full": frozenset(node.name for node in rerun),
            "selective": frozenset(node.name for node in rerun if node.cheap),
        },
    )


class _Lowering:
    """Writes nodes, and the sizes of the tensors they name."""

    def __init__(self, model: Model, cut: Cut, style: Style) -> None:
        self.model, self.cut, self.style = model, cut, style
        self.value = width(cut.dtype)
        self.stream = model.hidden * self.value * cut.share
        self.sizes: dict[str, float] = {SOURCE: self.stream, RESULT: self.stream}

    def mixer(self, block: Block) -> Iterator[Node]:
        shape, tp, hidden = block.attention, self.cut.tp, self.model.hidden
        heads, kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
        q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
        yield self._norm("attention.norm", SOURCE, "normed")
        whole = yield from self._enter("attention", "normed")
        yield from self._products("attention", whole, {"q": q, "k": kv, "v": kv}, hidden, shape.qkv_bias)
        queries, keys = "q", "k"
        if shape.qk_norm:
            normed = self._elementwise(
                "attention.qk_norm", self.style.norm, q + kv, ("q", "k"), {"qn": q, "kn": kv}, True
            )
            yield replace(normed, parameters=2.0 * shape.head_dim)
            queries, keys = "qn", "kn"
        if not self.model.learned_positions and shape.rotary_dim != 0:
            turned = {"qr": q, "kr": kv}
            yield self._elementwise("attention.rope", self.style.rope, q + kv, (queries, keys), turned, False)
            queries, keys = "qr", "kr"
        if self.style.softmax is None:
            yield self._fused_attention(heads, kv_heads, shape.head_dim, (queries, keys, "v"))
        else:
            yield from self._unfused_attention(heads, shape.head_dim, self.style.softmax, (queries, keys, "v"))
        yield self._linear("attention.out", ("mixed",), {"attended": hidden}, q, shape.out_bias)
        yield from self._leave("attention", "attended", SOURCE, "between")

    def ffn(self, block: Block) -> Iterator[Node]:
        ffn, hidden = block.feed_forward, self.model.hidden
        assert isinstance(ffn, DenseFfn), "mixtures are refused before they are lowered"
        inner = ffn.inner // self.cut.tp
        yield self._norm("ffn.norm", "between", "ready")
        whole = yield from self._enter("ffn", "ready")
        if not ffn.gated:
            yield self._linear("ffn.up", (whole,), {"up": inner}, hidden, ffn.bias)
            yield self._elementwise("ffn.activation", self.style.plain, inner, ("up",), {"active": inner}, True)
        else:
            yield from self._products("ffn", whole, {"gate": inner, "up": inner}, hidden, ffn.bias)
            yield from self._gate(inner)
        yield self._linear("ffn.down", ("active",), {"fed": hidden}, inner, ffn.bias)
        yield from self._leave("ffn", "fed", "between", RESULT)

    def embedding(self) -> Iterator[Node]:
        self.sizes[SOURCE] = 0.0
        vocab = -(-self.model.vocab // self.cut.tp)
        learned = self.model.learned_positions * self.model.hidden
        written = {"found": self.model.hidden} if self.cut.tp > 1 else {RESULT: self.model.hidden}
        look_up = self._elementwise("embedding", self.style.embedding, self.model.hidden, (), written, False)
        size = self.model.hidden * self.value
        table = Elementwise(
            name="embedding.by_weight", rows=vocab, read_per_row=0.0, written_per_row=size,
            pace=self.style.embedding.gradient_pace,
        )  # fmt: skip
        yield replace(look_up, by_weight=(table,), parameters=vocab * self.model.hidden + learned)
        if self.cut.tp > 1:
            leave, enter = ("reduce_scatter", "all_gather") if self.cut.sequence_parallel else ("all_reduce", "")
            yield self._collective("embedding.leave", leave, enter, ("found",), (RESULT,))

    def head(self) -> Iterator[Node]:
        self.sizes[RESULT] = 0.0
        model, vocab = self.model, -(-self.model.vocab // self.cut.tp)
        yield self._norm("head.norm", SOURCE, "normed", shared=False)
        whole = yield from self._enter("head", "normed")
        product = self._linear("head.logits", (whole,), {"logits": vocab}, model.hidden, False)
        yield replace(product, parameters=0.0 if model.tied_embeddings else product.parameters)
        if self.cut.tp > 1:
            # Largest value, target's value and sum of each row are agreed on: three numbers a token.
            self.sizes["agreed"] = 0.0
            yield Node(name="head.agree", forward=(self._exchange("head.agree", "all_reduce", 3 * LOSS_BYTES),))
        self.sizes |= {"wide": vocab * LOSS_BYTES, "likely": vocab * LOSS_BYTES}
        yield replace(
            self._elementwise("head.widen", self.style.widen, vocab, ("logits",), {}, False), writes=("wide",)
        )
        loss = self._elementwise("head.loss", self.style.loss, vocab, ("wide",), {}, False)
        yield replace(loss, writes=("likely",), keeps=("likely",), gradient_scratch=vocab * LOSS_BYTES)

    def _norm(self, name: str, read: str, written: str, shared: bool = True) -> Node:
        """What it reads is shared with the residual stream, whose gradient is added."""
        hidden, sizes = self.model.hidden, {written: self.model.hidden * self.cut.share}
        node = self._elementwise(name, self.style.norm, hidden, (read,), sizes, True, self.cut.rows)
        if shared:
            node = replace(node, by_input=node.by_input + self._total(name, hidden, self.cut.rows))
        return replace(node, parameters=hidden * (2 if self.model.norm_bias else 1))

    def _enter(self, part: str, read: str) -> Generator[Node, None, str]:
        """Into the matrices: with sequence parallelism the ranks' tokens are gathered, else copied; the gradient is
        scattered or summed."""
        if self.cut.tp == 1:
            return read
        if not self.cut.sequence_parallel:
            back = self._exchange(f"{part}.enter.by_input", "all_reduce", self.model.hidden * self.value)
            yield Node(name=f"{part}.enter", by_input=(back,), beside=self._beside(part))
            return read
        whole = f"{read}.whole"
        self.sizes[whole] = self.model.hidden * self.value
        again = "" if self.style.keeps_gathered else "all_gather"
        node = self._collective(f"{part}.enter", "all_gather", "reduce_scatter", (read,), (whole,), again=again)
        yield replace(node, beside=self._beside(part))
        return whole

    def _beside(self, part: str) -> tuple[str, ...]:
        if not self.style.overlap_by_weight:
            return ()
        products = {"attention": ("qkv", "q", "k", "v"), "ffn": ("up", "gate"), "head": ("logits",)}
        return tuple(f"{part}.{name}" for name in products[part])

    def _leave(self, part: str, read: str, beside: str, written: str) -> Iterator[Node]:
        """Out of the matrices and onto the residual stream."""
        if self.cut.tp > 1:
            self.sizes[f"{part}.summed"] = self.stream
            there, back = ("reduce_scatter", "all_gather") if self.cut.sequence_parallel else ("all_reduce", "")
            yield self._collective(f"{part}.leave", there, back, (read,), (f"{part}.summed",))
            read = f"{part}.summed"
        hidden, rows, style = self.model.hidden, self.cut.rows, self.style
        if style.dropout:
            self.sizes[f"{part}.mask"] = hidden * self.cut.share
        sizes = {written: hidden * self.cut.share}
        node = self._elementwise(f"{part}.residual", style.residual, hidden, (beside, read), sizes, False, rows)
        mask = (f"{part}.mask",) if style.dropout else ()
        yield replace(node, passes_on=True, writes=node.writes + mask, keeps=mask)

    def _products(self, part: str, read: str, widths: dict[str, int], k: int, bias: bool) -> Iterator[Node]:
        if self.style.joined:
            name = "qkv" if part == "attention" else "up"
            yield self._linear(f"{part}.{name}", (read,), widths, k, bias)
            return
        for place, (written, n) in enumerate(widths.items()):
            node = self._linear(f"{part}.{written}", (read,), {written: n}, k, bias)
            yield replace(node, by_input=node.by_input + self._total(f"{part}.{written}", k)) if place else node

    def _linear(self, name: str, reads: tuple[str, ...], widths: dict[str, int], k: int, bias: bool) -> Node:
        dtype, n = self.cut.dtype, sum(widths.values())
        self.sizes |= {written: size * self.value for written, size in widths.items()}
        back = self.style.gradient_dtype
        kept = reads if self.style.keeps_gathered else tuple(read.removesuffix(".whole") for read in reads)
        return Node(
            name=name,
            forward=(Gemm(name=name, m=TOKENS, n=n, k=k, dtype=dtype),),
            by_input=(Gemm(name=f"{name}.by_input", m=TOKENS, n=k, k=n, dtype=dtype),),
            by_weight=(Gemm(name=f"{name}.by_weight", m=n, n=k, k=TOKENS, dtype=dtype, out_dtype=back),),
            reads=reads,
            writes=tuple(widths),
            keeps=kept,
            parameters=n * k + n * bias,
        )

    def _total(self, name: str, values: int, rows: Size = TOKENS) -> tuple[Op, ...]:
        """The second gradient of a tensor is added to the first."""
        total = self.style.total
        return (self._stream(f"{name}.total", values, total.reads, total.writes, rows, total.kernels, total.pace),)

    def _gate(self, inner: int) -> Iterator[Node]:
        if self.style.fused_activation:
            written = {"active": inner}
            yield self._elementwise("ffn.activation", self.style.gated, inner, ("gate", "up"), written, True)
            return
        yield self._elementwise("ffn.activation", self.style.gated, inner, ("gate",), {"bent": inner}, True)
        yield self._elementwise("ffn.product", self.style.product, inner, ("bent", "up"), {"active": inner}, True)

    # Backward, the gradient of the queries is summed in fp32, and grouped keys and values get one for each query head.
    def _fused_attention(self, heads: int, kv_heads: int, head_dim: int, reads: tuple[str, ...]) -> Node:
        self.sizes |= {"mixed": heads * head_dim * self.value, "lse": heads * LSE_BYTES}

        def op(name: str, phase: Literal["forward", "backward"]) -> Attention:
            return Attention(
                name=name, phase=phase, heads=heads, kv_heads=kv_heads, head_dim=head_dim, kv_dtype=self.cut.dtype,
                dtype=self.cut.dtype,
            )  # fmt: skip

        return Node(
            name="attention.core",
            forward=(op("attention.core", "forward"),),
            by_input=(op("attention.core.by_input", "backward"),),
            reads=reads,
            writes=("mixed", "lse"),
            keeps=(*reads, "mixed", "lse"),
            cheap=not self.style.stop_early,
            gradient_scratch=heads * head_dim * (4.0 + (2 * self.value if kv_heads < heads else 0.0)),
        )

    def _unfused_attention(self, heads: int, head_dim: int, softmax: Stream, reads: tuple[str, ...]) -> Iterator[Node]:
        queries, keys, values = reads
        square, mixed = heads * self.cut.seq, heads * head_dim
        products = Rows("prefills", heads)
        sizes: dict[str, tuple[Size, Size, Size]] = {
            "scores": (PROMPT, PROMPT, head_dim),
            "context": (PROMPT, head_dim, PROMPT),
        }

        def product(name: str, of: str, times: int = 1) -> Op:
            m, n, k = sizes[of]
            return Gemm(name=name, m=m, n=n, k=k, batch=products, dtype=self.cut.dtype, count=times)

        self.sizes |= {"scores": square * self.value, "mixed": mixed * self.value}
        yield Node(
            name="attention.scores",
            forward=(product("attention.scores", "scores"),),
            by_input=(product("attention.scores.by_input", "context", 2),),
            reads=(queries, keys),
            writes=("scores",),
            keeps=(queries, keys),
            cheap=True,
        )
        soft = self._elementwise("attention.softmax", softmax, square, ("scores",), {"shares": square}, True)
        yield replace(soft, keeps=("shares",), cheap=True)
        shares = "shares"
        if self.style.dropout:
            self.sizes["attention.dropped"] = square
            drop = self._elementwise("attention.drop", self.style.dropout, square, ("shares",), {"left": square}, False)
            yield replace(drop, writes=(*drop.writes, "attention.dropped"), keeps=("attention.dropped",), cheap=True)
            shares = "left"
        yield Node(
            name="attention.context",
            forward=(product("attention.context", "context"),),
            by_input=(
                product("attention.context.by_input", "scores"),
                product("attention.context.by_value", "context"),
            ),
            reads=(shares, values),
            writes=("mixed",),
            keeps=(shares, values),
            cheap=True,
        )

    def _elementwise(
        self, name: str, stream: Stream, values: float, reads: tuple[str, ...], writes: Mapping[str, float],
        keeps: bool, rows: Size = TOKENS,
    ) -> Node:  # fmt: skip
        self.sizes |= {written: size * self.value for written, size in writes.items()}
        there = (stream.reads, stream.writes, rows, stream.kernels, stream.pace)
        back = (stream.gradient_reads, stream.gradient_writes, rows, stream.gradient_kernels, stream.gradient_pace)
        return Node(
            name=name,
            forward=(self._stream(name, values, *there),),
            by_input=(self._stream(f"{name}.by_input", values, *back),),
            reads=reads,
            writes=tuple(writes),
            keeps=reads if keeps else (),
            cheap=self.style.stop_early,
        )

    def _stream(
        self, name: str, values: float, reads: float, writes: float, rows: Size, kernels: int, pace: float
    ) -> Elementwise:
        size = values * self.value / kernels
        return Elementwise(
            name=name, rows=rows, read_per_row=reads * size, written_per_row=writes * size, count=kernels, pace=pace
        )

    def _exchange(self, name: str, op: str, bytes_per_row: float) -> Collective:
        return Collective(name=name, op=op, rows=TOKENS, bytes_per_row=bytes_per_row, ranks=self.cut.tp)  # type: ignore[arg-type]

    def _collective(
        self, name: str, there: str, back: str, reads: tuple[str, ...], writes: tuple[str, ...], again: str = ""
    ) -> Node:
        size = self.model.hidden * self.value
        gradient = (self._exchange(f"{name}.by_input", back, size),) if back else ()
        regather = (self._exchange(f"{name}.again", again, size),) if again else ()
        return Node(
            name=name,
            forward=(self._exchange(name, there, size),),
            by_input=regather + gradient,
            reads=reads,
            writes=writes,
            passes_on=not back,
            cheap=self.style.stop_early,
        )
