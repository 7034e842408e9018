"""Latent attention (MLA): queries, keys and values projected up from a small latent per token.

Every tensor-parallel rank projects down with unsharded matrices; up-projections are cut by heads.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from gnomon.graph.layers import paged, whole
from gnomon.graph.layers.whole import Heads
from gnomon.graph.layers.writer import Writer
from gnomon.graph.tape import TapeNode
from gnomon.graph.windows import Window
from gnomon.spec import LatentAttention


def latent(writer: Writer, shape: LatentAttention, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `attended`."""
    heads, style, hidden = shape.heads // writer.cut.tp, writer.style, writer.model.hidden
    wide, value_width = shape.nope_dim + shape.rope_dim, heads * shape.value_dim
    gathered = yield from _projections(writer, shape, read, heads * wide)
    window = Window(shape.window) if shape.window else None
    of = Heads(heads=heads, kv_heads=heads, key_dim=wide, value_dim=shape.value_dim, window=window)
    if writer.cut.paged:
        turned = (heads + 1) * shape.rope_dim
        yield writer.elementwise("attention.rope", style.rope, turned, ("q",), {"qr": heads * wide}, False)
        yield from paged.latent(writer, shape, heads)
    else:
        unfolded = {"kv": heads * (shape.nope_dim + shape.value_dim)}
        yield writer.linear("attention.kv_up", "kv_up", gathered, unfolded, shape.kv_rank)
        # Turned parts and the others are put together: keys get the one turned part beside each head's own.
        joined = {"qr": heads * wide, "kr": heads * wide, "v": value_width}
        yield writer.elementwise("attention.rope", style.rope, sum(joined.values()), ("q", "kv"), joined, False)
        yield from whole.core(writer, of, ("qr", "kr", "v"))
    yield writer.linear("attention.out", "out", "mixed", {"attended": hidden}, value_width, bias=shape.bias)


def _projections(writer: Writer, shape: LatentAttention, read: str, queries: int) -> Generator[TapeNode, None, str]:
    """Queries, and the latents of keys and values. Both are projected down in one GEMM where an engine joins them."""
    hidden, rows, bias, folded = writer.model.hidden, writer.cut.rows, shape.bias, shape.kv_rank + shape.rope_dim
    if shape.q_rank is None:
        whole = yield from writer.enter("attention.q", read)
        yield writer.linear("attention.q", "q", whole, {"q": queries}, hidden)
    elif writer.style.joined_down:
        down = {"q.folded": shape.q_rank, "kv.folded": folded}
        yield writer.linear("attention.down", "q_down", read, down, hidden, rows, bias)
    else:
        yield writer.linear("attention.q_down", "q_down", read, {"q.folded": shape.q_rank}, hidden, rows, bias)
    if shape.q_rank is not None:
        gathered = yield from _normed(writer, "q", shape.q_rank, shape.q_rank)
        yield writer.linear("attention.q_up", "q_up", gathered, {"q": queries}, shape.q_rank)
    if shape.q_rank is None or not writer.style.joined_down:
        yield writer.linear("attention.kv_down", "kv_down", read, {"kv.folded": folded}, hidden, rows, bias)
    return (yield from _normed(writer, "kv", shape.kv_rank, folded))


def _normed(writer: Writer, name: str, rank: int, values: int) -> Generator[TapeNode, None, str]:
    """A latent per token, normed, and gathered from the ranks that share the tokens out, with what is beside it."""
    folded, normed, norm = f"{name}.folded", f"{name}.normed", writer.style.lone_norm or writer.style.norm
    sizes = {normed: rank * writer.cut.share}
    node = writer.elementwise(f"attention.{name}_norm", norm, rank, (folded,), sizes, True, writer.cut.rows)
    yield replace(node, parameters=float(rank))
    return (yield from writer.enter(f"attention.{name}", normed, values))
