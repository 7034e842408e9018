"""Softmax attention over whole sequences: in one kernel or in parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from gnomon.graph.core import CoreAttention
from gnomon.graph.layers import plain
from gnomon.graph.layers.heads import Heads
from gnomon.graph.layers.writer import WIDE, Writer
from gnomon.graph.ops import PROMPT, ROW_BYTES, Gemm, Op, Rows, Size
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode

LSE_BYTES = 4.0
"""Fused attention saves one fp32 number per head and token."""
GRADIENT_BYTES = 4.0
"""Gradients that several blocks of threads add to are summed in fp32."""


def core(writer: Writer, of: Heads, reads: tuple[str, str, str]) -> Iterator[TapeNode]:
    """Queries, keys and values to `mixed`."""
    if writer.cut.inference:
        yield from plain.before(writer, of)
    if writer.style.softmax is None:
        yield _fused(writer, of, reads)
    else:
        yield from _in_parts(writer, of, writer.style.softmax, reads)


# Backward, the gradient of the queries is summed in fp32, and grouped keys and values get one for each query head.
def _fused(writer: Writer, of: Heads, reads: tuple[str, ...]) -> TapeNode:
    value = writer.value
    # PyTorch's kernel for four bytes multiplies in a way of its own, whatever GEMMs are allowed.
    dtype = "fp32" if value == WIDE else writer.cut.dtype
    kernel = CoreAttention(
        name="attention.core", phase="forward", heads=of.heads, kv_heads=of.kv_heads, head_dim=of.key_dim,
        value_dim=of.value_dim, over=writer.cut.cp, kv_dtype=dtype, dtype=dtype, capped=of.capped,
        **plain.span(writer, of),
    )  # fmt: skip
    writer.sizes |= {"mixed": of.heads * of.value_dim * value, "lse": of.heads * LSE_BYTES}
    grouped = of.heads * (of.key_dim + of.value_dim) * value if of.kv_heads < of.heads else 0.0
    efficiency = writer.style.attention_gradient_efficiency
    back = replace(kernel, name="attention.core.by_input", phase="backward", efficiency=efficiency or 1.0)
    return TapeNode(
        name="attention.core",
        forward=(kernel,),
        dgrad=(back,) if efficiency else (),
        reads=reads,
        writes=("mixed", "lse"),
        keeps=(*reads, "mixed", "lse"),
        cheap=not writer.style.stop_early,
        parameters=float(of.heads * of.sinks),
        gradient_scratch=of.heads * of.key_dim * GRADIENT_BYTES + grouped,
    )


def _in_parts(writer: Writer, of: Heads, softmax: Stream, reads: tuple[str, str, str]) -> Iterator[TapeNode]:
    """Scores, softmax and context as kernels of their own, over the whole square."""
    (queries, keys, values), style, cut = reads, writer.style, writer.cut
    square, mixed = of.heads * cut.seq, of.heads * of.value_dim
    several = Rows("prefills", of.heads)
    sizes: dict[str, tuple[Size, Size, Size]] = {
        "scores": (PROMPT, PROMPT, of.key_dim),
        "queries": (PROMPT, of.key_dim, PROMPT),
        "context": (PROMPT, of.value_dim, PROMPT),
        "shares": (PROMPT, PROMPT, of.value_dim),
    }

    # Heads lie side by side, so that each begins where its width says; scores are as wide as a sequence.
    narrow, wide = (gcd(ROW_BYTES, round(width * writer.value)) for width in (of.key_dim, cut.seq))

    def matmul(name: str, of: str, times: int = 1) -> Op:
        m, n, k = sizes[of]
        out = wide if of in ("scores", "shares") else narrow
        return Gemm(
            name=name, m=m, n=n, k=k, batch=several, dtype=cut.dtype, count=times, aligned=narrow, out_aligned=out,
            out_dtype=writer.out,
        )  # fmt: skip

    writer.sizes |= {"scores": square * writer.value, "mixed": mixed * writer.value}
    yield TapeNode(
        name="attention.scores",
        forward=(matmul("attention.scores", "scores"),),
        dgrad=(matmul("attention.scores.by_input", "queries", 2),),
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
        dgrad=(
            matmul("attention.context.by_input", "shares"),
            matmul("attention.context.by_value", "context"),
        ),
        reads=(shares, values),
        writes=("mixed",),
        keeps=(shares, values),
        cheap=True,
    )
