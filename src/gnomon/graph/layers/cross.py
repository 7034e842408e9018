"""Cross-attention: queries of the stream over keys and values of a source, which are made once for each sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.graph.dtypes import width
from gnomon.graph.layers.whole import GRADIENT_BYTES, LSE_BYTES
from gnomon.graph.layers.writer import Writer, bare
from gnomon.graph.ops import Rows
from gnomon.graph.source_attention import SourceAttention
from gnomon.graph.streams import streamed
from gnomon.graph.style import NOTHING
from gnomon.graph.tape import TapeNode
from gnomon.spec import CrossAttention


def cross(writer: Writer, shape: CrossAttention, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `crossed`, partial sums of which each tensor-parallel rank has one. In a step of
    serving prompts make keys and values, and decodes reuse them."""
    tp, style, rows = writer.cut.tp, writer.style, Rows("prefills", float(writer.cut.source))
    heads, kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    norm = style.head_norm or style.lone_norm or style.norm
    read = yield from writer.enter("cross", read)
    yield writer.linear("cross.q", "cross_q", read, {"cross.q": q}, writer.model.hidden, bias=shape.q_bias)
    yield from _entered(writer, shape, rows)
    yield from _keys(writer, shape, kv, rows)
    queries, keys = "cross.q", "cross.k"
    if shape.qk_norm:
        normed = writer.elementwise("cross.q_norm", norm, q, (queries,), {"cross.qn": q}, True)
        yield replace(normed, parameters=float(q if shape.qk_norm_whole else shape.head_dim))
        share = kv * writer.cut.per_token(rows)
        normed = writer.elementwise("cross.k_norm", norm, kv, (keys,), {"cross.kn": share}, True, rows)
        yield replace(normed, parameters=float(kv if shape.qk_norm_whole else shape.head_dim))
        queries, keys = "cross.qn", "cross.kn"
    if style.kept_source is not NOTHING:
        yield writer.elementwise("cross.copies", style.kept_source, 2 * kv, (), {}, False, rows)
    yield from _attended(writer, heads, kv_heads, shape.head_dim, (queries, keys, "cross.v"))
    out = writer.linear("cross.out", "cross_out", "cross.mixed", {"crossed": writer.model.hidden}, q)
    yield replace(out, parameters=out.parameters + writer.model.hidden * shape.out_bias)


def _entered(writer: Writer, shape: CrossAttention, rows: Rows) -> Iterator[TapeNode]:
    """The source, which is held where it was made: every layer adds a gradient to it."""
    if writer.cut.cached:
        return
    size = shape.source_width * writer.value
    writer.sizes["source"] = 0.0
    back = [streamed("cross.source.total", writer.style.total, size, rows)]
    if writer.cut.tp > 1:
        summed = writer.exchange("cross.source.by_input", "all_reduce", size)
        back.insert(0, replace(summed, rows=rows))
    yield TapeNode(name="cross.source", dgrad=tuple(back), writes=("source",))


def _keys(writer: Writer, shape: CrossAttention, kv: int, rows: Rows) -> Iterator[TapeNode]:
    read, k, share = "source", shape.source_width, writer.cut.per_token(rows) * writer.value
    biases = {"k": kv * shape.key_bias, "v": kv * shape.value_bias}
    scratch = k * share  # of the gradient of the source
    if writer.style.joined:
        node = writer.linear("cross.kv", "cross_k", read, {"cross.k": kv, "cross.v": kv}, k, rows)
        own = node.parameters + sum(biases.values())
        yield replace(node, parameters=own, gradient_scratch=scratch)
        return
    for role, bias in biases.items():
        node = writer.linear(f"cross.{role}", f"cross_{role}", read, {f"cross.{role}": kv}, k, rows)
        yield replace(node, parameters=node.parameters + bias, gradient_scratch=scratch)


def _attended(
    writer: Writer, heads: int, kv_heads: int, head_dim: int, reads: tuple[str, str, str]
) -> Iterator[TapeNode]:
    cut, style = writer.cut, writer.style
    masked = style.masked or writer.distances
    kernel = SourceAttention(
        name="cross.attention", phase="prefill" if cut.paged else "forward", heads=heads, kv_heads=kv_heads,
        head_dim=head_dim, keys=cut.source, dtype=cut.dtype,
        efficiency=style.masked_efficiency if masked else style.attention_efficiency,
    )  # fmt: skip
    size = heads * head_dim
    writer.sizes |= {"cross.mixed": size * writer.value, "cross.lse": heads * LSE_BYTES}
    yield TapeNode(
        name="cross.attention",
        forward=(kernel,),
        reads=reads,
        writes=("cross.mixed", "cross.lse"),
        keeps=(*reads, "cross.mixed", "cross.lse"),
        cheap=not style.stop_early,
        gradient_scratch=size * (GRADIENT_BYTES + (kv_heads < heads) * 2 * width(cut.dtype)),
    )
    if cut.cached:
        yield from bare(replace(kernel, name="cross.decode", phase="decode", efficiency=1.0))
