"""Latent attention (MLA) with its gradients: queries, keys and values projected up from a small latent per token."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from gnomon.graph.autograd.attention import Heads, core
from gnomon.graph.autograd.writer import Writer
from gnomon.graph.tape import TapeNode
from gnomon.spec import LatentAttention


def latent(writer: Writer, shape: LatentAttention, read: str) -> Iterator[TapeNode]:
    """From the normed stream to `attended`. Every tensor-parallel rank projects its own tokens down with unsharded
    matrices; the latents are gathered and projected up to its own heads."""
    heads, turning = shape.heads // writer.cut.tp, shape.rope_dim
    wide = shape.nope_dim + turning
    yield from _queries(writer, shape, read, heads * wide)
    gathered = yield from _folded(writer, "kv", read, shape.kv_rank, turning, shape.bias)
    yield _second_gradient(writer)
    unfolded = {"kv": heads * (shape.nope_dim + shape.value_dim)}
    yield writer.linear("attention.kv.up", (gathered,), unfolded, shape.kv_rank, False)
    # Turned parts and the others are put together: keys get the one turned part beside each head's own.
    value_width = heads * shape.value_dim
    joined = {"qr": heads * wide, "kr": heads * wide, "v": value_width}
    moved = 2 * heads * wide + value_width
    yield writer.elementwise("attention.rope", writer.style.rope, moved, ("q", "kv"), joined, False)
    of = Heads(heads=heads, kv_heads=heads, key_dim=wide, value_dim=shape.value_dim, window=shape.window)
    yield from core(writer, of, ("qr", "kr", "v"))
    yield writer.linear("attention.out", ("mixed",), {"attended": writer.model.hidden}, value_width, shape.bias)


def _queries(writer: Writer, shape: LatentAttention, read: str, n: int) -> Iterator[TapeNode]:
    if shape.q_rank is None:
        whole = yield from writer.enter("attention.q", read)
        yield writer.linear("attention.q.up", (whole,), {"q": n}, writer.model.hidden, False)
        return
    gathered = yield from _folded(writer, "q", read, shape.q_rank, 0, shape.bias)
    yield writer.linear("attention.q.up", (gathered,), {"q": n}, shape.q_rank, False)


def _folded(writer: Writer, name: str, read: str, rank: int, beside: int, bias: bool) -> Generator[TapeNode, None, str]:
    """A latent per token, normed, and gathered from the ranks that share the tokens out. `beside` are channels
    that are neither normed nor unfolded."""
    rows = writer.cut.rows
    folded, normed = f"{name}.folded", f"{name}.normed"
    yield writer.linear(f"attention.{name}.down", (read,), {folded: rank + beside}, writer.model.hidden, bias, rows)
    kept = writer.elementwise(
        f"attention.{name}.norm", writer.style.norm, rank, (folded,), {normed: rank * writer.cut.share}, True, rows
    )
    yield replace(kept, parameters=float(rank))
    return (yield from writer.enter(f"attention.{name}", normed, rank + beside))


def _second_gradient(writer: Writer) -> TapeNode:
    """Queries and keys read the same stream: its two gradients are added."""
    total = writer.total("attention.folded", writer.model.hidden, writer.cut.rows)
    return TapeNode(name="attention.folded", by_input=total)
