"""Softmax attention: its matrices and what stands between them. What mixes tokens is in `whole` and `paged`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.layers import paged, whole
from gnomon.graph.layers.heads import Heads
from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import TOKENS, Elementwise
from gnomon.graph.streams import streamed
from gnomon.graph.style import NOTHING
from gnomon.graph.tape import TapeNode
from gnomon.graph.windows import Window
from gnomon.spec import AttentionMixer


def attention(writer: Writer, shape: AttentionMixer, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `attended`, partial sums of which each tensor-parallel rank has one. Sinks, slopes and
    learned distances are a few numbers per head, read in the kernel that mixes."""
    tp, hidden, style = writer.cut.tp, writer.model.hidden, writer.style
    heads, kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    own = 0 if shape.shared_kv else kv
    read = yield from writer.enter("attention", read)
    yield from writer.linears("attention.", read, _widths(shape, q, kv), hidden, _biases(shape, q, own), "qkv")
    queries, keys = "q", "k"
    if shape.qk_norm:
        norm, sizes = style.head_norm or style.lone_norm or style.norm, {"qn": q} | ({"kn": own} if own else {})
        normed = writer.elementwise("attention.qk_norm", norm, q + own, ("q", "k")[: len(sizes)], sizes, True)
        yield replace(writer.widened(normed, q + own), parameters=_norm_parameters(shape, tp))
        queries, keys = "qn", "kn" if own else "k"
    turned = shape.head_dim if shape.rotary_dim is None else shape.rotary_dim
    if turned and (writer.cut.inference or not writer.model.learned_positions):
        values = (q + own) * turned // shape.head_dim if style.rope_in_place else q + own
        reads, sizes = (queries, keys) if own else (queries,), {"qr": q} | ({"kr": own} if own else {})
        yield writer.elementwise("attention.rope", style.rope, values, reads, sizes, False)
        queries, keys = "qr", "kr" if own else "k"
    of = Heads(
        heads=heads, kv_heads=kv_heads, key_dim=shape.head_dim, value_dim=shape.head_dim, causal=shape.causal,
        window=Window(shape.window, shape.chunked) if shape.window else None, sinks=shape.sinks,
        capped=shape.logit_cap is not None,
    )  # fmt: skip
    if style.beside_attention is not NOTHING:
        yield writer.elementwise("attention.copies", style.beside_attention, q, (), {}, False)
    if shape.relative_buckets and not writer.cut.cached:
        yield distances(writer, shape, heads)
    if writer.cut.paged:
        yield from paged.softmax(writer, shape, of)
    else:
        if shape.shared_kv:
            yield _shared(writer, kv)
        yield from whole.core(writer, of, (queries, keys, "k" if shape.tied_values else "v"))
    mixed = "mixed"
    if shape.output_gate:
        yield writer.elementwise("attention.gate", style.product, q, ("mixed", "gate"), {"gated": q}, True)
        mixed = "gated"
    yield writer.linear("attention.out", "out", mixed, {"attended": hidden}, q, bias=shape.out_bias)


def distances(writer: Writer, shape: AttentionMixer, heads: int) -> TapeNode:
    """A learned table of distances, as a number for each pair and head that all sequences of a step share."""
    length = writer.cut.seq
    size = heads * length * writer.value
    op = Elementwise(name="attention.distances", rows=length, read_per_row=0.0, written_per_row=size)
    back = Elementwise(name="attention.distances.by_weight", rows=length, read_per_row=size, written_per_row=0.0)
    writer.sizes["distances"] = size
    return TapeNode(
        name=op.name, forward=(op,), wgrad=(back,), writes=("distances",), keeps=("distances",),
        parameters=float(shape.relative_buckets * heads),
    )  # fmt: skip


def _shared(writer: Writer, kv: int) -> TapeNode:
    """Keys and values of an earlier layer, which holds them; their gradients are added to those it has."""
    writer.sizes |= {"k": 0.0, "v": 0.0}
    total = streamed("attention.shared.total", writer.style.total, 2 * kv * writer.value, TOKENS)
    return TapeNode(name="attention.shared", dgrad=(total,), writes=("k", "v"))


def _widths(shape: AttentionMixer, q: int, kv: int) -> dict[str, int]:
    """What the matrices before attention give."""
    gate = {"gate": q} if shape.output_gate else {}
    if shape.shared_kv:
        return {"q": q} | gate
    return {"q": q} | gate | ({"k": kv} if shape.tied_values else {"k": kv, "v": kv})


def _biases(shape: AttentionMixer, q: int, kv: int) -> int:
    if not shape.qkv_bias:
        return 0
    return q * (1 + shape.output_gate) + kv * (shape.key_bias + (not shape.tied_values))


def _norm_parameters(shape: AttentionMixer, tp: int) -> float:
    """A norm over all heads is cut with them; one that all heads share is not."""
    own = not shape.shared_kv
    whole = (shape.q_width + own * shape.kv_width) / tp
    widths = whole if shape.qk_norm_whole else (1.0 + own) * shape.head_dim
    return widths * (shape.qk_norm_weight + shape.qk_norm_bias)
