"""Softmax attention with its gradients: in one kernel or in parts, over sequences that lie on one rank or several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal

from gnomon.graph.autograd.writer import Writer
from gnomon.graph.core import CoreAttention
from gnomon.graph.ops import PROMPT, ROW_BYTES, Gemm, Op, Rows, Size
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.graph.windows import Window
from gnomon.spec import AttentionMixer

WIDE = 4.0
"""Bytes of a value in fp32."""
LSE_BYTES = 4.0
"""Fused attention saves one fp32 number per head and token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """What one rank's core attention works on."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None

    @property
    def mixed(self) -> int:
        """Channels of the result."""
        return self.heads * self.value_dim

    @property
    def cached(self) -> int:
        """Channels of keys and values together."""
        return self.kv_heads * (self.key_dim + self.value_dim)


def attention(writer: Writer, shape: AttentionMixer, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `attended`, partial sums of which each tensor-parallel rank has one."""
    tp, hidden, style = writer.cut.tp, writer.model.hidden, writer.style
    heads, kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    whole = yield from writer.enter("attention", read)
    yield from writer.linears("attention", whole, {"q": q, "k": kv, "v": kv}, hidden, shape.qkv_bias)
    queries, keys = "q", "k"
    if shape.qk_norm:
        norm = style.head_norm or style.norm
        normed = writer.elementwise("attention.qk_norm", norm, q + kv, ("q", "k"), {"qn": q, "kn": kv}, True)
        yield replace(writer.widened(normed, q + kv), parameters=_norm_parameters(shape, tp))
        queries, keys = "qn", "kn"
    if not writer.model.learned_positions and shape.rotary_dim != 0:
        turned = {"qr": q, "kr": kv}
        yield writer.elementwise("attention.rope", style.rope, q + kv, (queries, keys), turned, False)
        queries, keys = "qr", "kr"
    of = Heads(heads=heads, kv_heads=kv_heads, key_dim=shape.head_dim, value_dim=shape.head_dim, window=shape.window)
    yield from core(writer, of, (queries, keys, "v"))
    yield writer.linear("attention.out", ("mixed",), {"attended": hidden}, q, shape.out_bias)


def _norm_parameters(shape: AttentionMixer, tp: int) -> float:
    """A norm over all heads is cut with them; one that all heads share is not."""
    widths = (shape.q_width + shape.kv_width) / tp if shape.qk_norm_whole else 2.0 * shape.head_dim
    return widths * (shape.qk_norm_weight + shape.qk_norm_bias)


def core(writer: Writer, of: Heads, reads: tuple[str, str, str]) -> Iterator[TapeNode]:
    """Queries, keys and values to `mixed`."""
    if writer.style.softmax is not None:
        yield from _in_parts(writer, of, writer.style.softmax, reads)
        return
    node = _fused(writer, of, reads)
    if writer.cut.cp > 1:
        node = _COMMS[writer.cut.cp_comm](writer, of, node)
    yield node


# Backward, the gradient of the queries is summed in fp32, and grouped keys and values get one for each query head.
def _fused(writer: Writer, of: Heads, reads: tuple[str, ...]) -> TapeNode:
    value = writer.value
    writer.sizes |= {"mixed": of.mixed * value, "lse": of.heads * LSE_BYTES}
    grouped = of.heads * (of.key_dim + of.value_dim) * value if of.kv_heads < of.heads else 0.0
    return TapeNode(
        name="attention.core",
        forward=(_kernel(writer, of, "attention.core", "forward"),),
        by_input=(_kernel(writer, of, "attention.core.by_input", "backward"),),
        reads=reads,
        writes=("mixed", "lse"),
        keeps=(*reads, "mixed", "lse"),
        cheap=not writer.style.stop_early,
        gradient_scratch=of.heads * of.key_dim * 4.0 + grouped,
    )


def _kernel(writer: Writer, of: Heads, name: str, phase: Literal["forward", "backward"]) -> CoreAttention:
    dtype, cp = writer.cut.dtype, writer.cut.cp
    return CoreAttention(
        name=name, phase=phase, heads=of.heads, kv_heads=of.kv_heads, head_dim=of.key_dim, value_dim=of.value_dim,
        window=Window(of.window) if of.window else None, over=cp, kv_dtype=dtype, dtype=dtype,
    )  # fmt: skip


def _ring(writer: Writer, of: Heads, node: TapeNode) -> TapeNode:
    """Ring attention: keys and values travel around the ranks, overlapped with attention over those that have arrived;
    backward their gradients travel with them, one hop more."""
    cut, merged = writer.cut, writer.style.merged
    each = of.heads * (of.key_dim + of.value_dim) if merged else of.cached
    size, summed = each * writer.value, each * (WIDE if merged else writer.value)
    # A neighbour is at most as far away as half the ring is wide.
    apart = -(-cut.tp * cut.cp // 2)

    def hops(name: str, count: int, size: float) -> Op:
        return replace(writer.exchange(name, "send_recv", size, 2, apart), count=count)

    there: tuple[Op, ...] = (hops("attention.ring", cut.cp - 1, size),)
    back: tuple[Op, ...] = (hops("attention.ring.by_input", 2 * cut.cp - 1, size),)
    if merged:
        merging = writer.elementwise("attention.merge", merged, of.mixed, (), {}, False)
        more = [replace(op, count=op.count * (cut.cp - 1)) for op in (*merging.forward, *merging.by_input)]
        keys = hops("attention.ring.by_input", cut.cp - 1, size)
        there, back = (*there, more[0]), (keys, hops("attention.ring.gradients", cut.cp, summed), more[1])
    return replace(
        node,
        forward=(*node.forward, *there),
        by_input=(*node.by_input, *back),
        own_overlap=True,
        # What runs now and what arrives meanwhile.
        scratch=2 * size,
        gradient_scratch=node.gradient_scratch + 2 * size + 2 * summed,
    )


def _exchanged(writer: Writer, of: Heads, node: TapeNode) -> TapeNode:
    """Ranks trade tokens for heads before, and back after: each runs whole sequences of some heads (Ulysses)."""
    cut, value = writer.cut, writer.value
    part = replace(of, heads=of.heads // cut.cp, kv_heads=of.kv_heads // cut.cp)

    def whole(name: str, phase: Literal["forward", "backward"]) -> Op:
        return replace(_kernel(writer, part, name, phase), traded=True)

    def trade(name: str, values: float) -> Op:
        return writer.exchange(name, "all_to_all", values * value, cut.cp, cut.tp)

    into, out = of.heads * of.key_dim + of.cached, of.mixed
    return replace(
        node,
        forward=(
            trade("attention.scatter", into),
            whole("attention.core", "forward"),
            trade("attention.gather", out),
        ),
        by_input=(
            trade("attention.gather.by_input", out),
            whole("attention.core.by_input", "backward"),
            trade("attention.scatter.by_input", into),
        ),
        scratch=(into + out) * value,
        gradient_scratch=node.gradient_scratch + (into + out) * value,
    )


def _gathered(writer: Writer, of: Heads, node: TapeNode) -> TapeNode:
    """Every rank gathers all keys and values, and again for the backward pass, which scatters their gradients."""
    cut, size = writer.cut, of.cached * writer.value * writer.cut.cp

    def exchange(name: str, op: str) -> Op:
        return writer.exchange(name, op, size, cut.cp, cut.tp)

    return replace(
        node,
        forward=(exchange("attention.keys", "all_gather"), *node.forward),
        by_input=(
            exchange("attention.keys.again", "all_gather"),
            *node.by_input,
            exchange("attention.keys.by_input", "reduce_scatter"),
        ),
        scratch=size,
        gradient_scratch=node.gradient_scratch + 2 * size,
    )


_COMMS = {"p2p": _ring, "a2a": _exchanged, "allgather": _gathered}


def _in_parts(writer: Writer, of: Heads, softmax: Stream, reads: tuple[str, str, str]) -> Iterator[TapeNode]:
    """Scores, softmax and context as kernels of their own, over the whole square."""
    (queries, keys, values), style, cut = reads, writer.style, writer.cut
    square, mixed = of.heads * cut.seq, of.heads * of.value_dim
    several = Rows("prefills", of.heads)
    sizes: dict[str, tuple[Size, Size, Size]] = {
        "scores": (PROMPT, PROMPT, of.key_dim),
        "context": (PROMPT, of.key_dim, PROMPT),
    }

    # Heads lie side by side, so that each begins where its width says; scores are as wide as a sequence.
    narrow, wide = (gcd(ROW_BYTES, round(width * writer.value)) for width in (of.key_dim, cut.seq))

    def matmul(name: str, of: str, times: int = 1) -> Op:
        m, n, k = sizes[of]
        out = wide if of == "scores" else narrow
        return Gemm(
            name=name, m=m, n=n, k=k, batch=several, dtype=cut.dtype, count=times, aligned=narrow, out_aligned=out
        )

    writer.sizes |= {"scores": square * writer.value, "mixed": mixed * writer.value}
    yield TapeNode(
        name="attention.scores",
        forward=(matmul("attention.scores", "scores"),),
        by_input=(matmul("attention.scores.by_input", "context", 2),),
        reads=(queries, keys),
        writes=("scores",),
        keeps=(queries, keys),
        cheap=True,
    )
    soft = writer.elementwise("attention.softmax", softmax, square, ("scores",), {"shares": square}, True)
    yield replace(soft, keeps=("shares",), cheap=True)
    shares = "shares"
    if style.dropout:
        writer.sizes["attention.dropped"] = square
        drop = writer.elementwise("attention.drop", style.dropout, square, ("shares",), {"left": square}, False)
        yield replace(drop, writes=(*drop.writes, "attention.dropped"), keeps=("attention.dropped",), cheap=True)
        shares = "left"
    yield TapeNode(
        name="attention.context",
        forward=(matmul("attention.context", "context"),),
        by_input=(
            matmul("attention.context.by_input", "scores"),
            matmul("attention.context.by_value", "context"),
        ),
        reads=(shares, values),
        writes=("mixed",),
        keeps=(shares, values),
        cheap=True,
    )
