"""Softmax attention: its matrices and what stands between them. What mixes tokens is in `whole` and `paged`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.layers import paged, whole
from gnomon.graph.layers.whole import Heads
from gnomon.graph.layers.writer import Writer
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
        norm, sizes = style.head_norm or style.lone_norm or style.norm, {"qn": q, "kn": kv}
        normed = writer.elementwise("attention.qk_norm", norm, q + own, ("q", "k"), sizes, True)
        yield replace(writer.widened(normed, q + own), parameters=_norm_parameters(shape, tp))
        queries, keys = "qn", "kn"
    turned = shape.head_dim if shape.rotary_dim is None else shape.rotary_dim
    if turned and not writer.model.learned_positions:
        values = (q + own) * turned // shape.head_dim if style.rope_in_place else q + own
        yield writer.elementwise("attention.rope", style.rope, values, (queries, keys), {"qr": q, "kr": kv}, False)
        queries, keys = "qr", "kr"
    of = Heads(
        heads=heads, kv_heads=kv_heads, key_dim=shape.head_dim, value_dim=shape.head_dim, causal=shape.causal,
        window=Window(shape.window, shape.chunked) if shape.window else None, sinks=shape.sinks,
    )  # fmt: skip
    if writer.cut.paged:
        yield from paged.softmax(writer, shape, of)
    else:
        yield from whole.core(writer, of, (queries, keys, "k" if shape.tied_values else "v"))
    mixed = "mixed"
    if shape.output_gate:
        yield writer.elementwise("attention.gate", style.product, q, ("mixed", "gate"), {"gated": q}, True)
        mixed = "gated"
    yield writer.linear("attention.out", "out", mixed, {"attended": hidden}, q, bias=shape.out_bias)


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
    widths = (shape.q_width + shape.kv_width) / tp if shape.qk_norm_whole else 2.0 * shape.head_dim
    return widths * (shape.qk_norm_weight + shape.qk_norm_bias)
