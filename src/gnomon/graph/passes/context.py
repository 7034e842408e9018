"""Context parallelism: attention over sequences that lie on several ranks."""

from __future__ import annotations

from dataclasses import replace

from gnomon.graph.core import CoreAttention
from gnomon.graph.layers.writer import WIDE, Writer
from gnomon.graph.ops import TOKENS, Op
from gnomon.graph.streams import streamed
from gnomon.graph.style import Stream
from gnomon.graph.tape import TapeNode
from gnomon.spec.training import TWO_LEVELS

PARTIAL = Stream(2, 1, 2, 1)
"""A partial result that arrives from another rank is added to the sum so far, forward and, of queries' gradients,
backward."""


def across(node: TapeNode, writer: Writer) -> TapeNode:
    """Attention as the ranks of a sequence run it together; what is not attention runs as it did."""
    core = next((op for op in node.forward if isinstance(op, CoreAttention)), None)
    return node if core is None or writer.cut.cp == 1 else _COMMS[writer.cut.cp_comm](writer, core, node)


def _cached(core: CoreAttention) -> int:
    """Channels of keys and values together."""
    return core.kv_heads * (core.head_dim + core.values)


def _ring(writer: Writer, core: CoreAttention, node: TapeNode) -> TapeNode:
    """Ring attention over all ranks."""
    way = _queries_around if writer.style.queries_travel else _around
    return way(writer, core, node, writer.cut.cp)


def _around(writer: Writer, core: CoreAttention, node: TapeNode, ranks: int) -> TapeNode:
    """Keys and values travel around so many ranks, overlapped with attention over those that have arrived; backward
    their gradients travel with them, one hop more."""
    merged = writer.style.merged
    each = core.heads * (core.head_dim + core.values) if merged else _cached(core)
    size, summed = each * writer.value, each * (WIDE if merged else writer.value)
    there: tuple[Op, ...] = (_hops(writer, "attention.ring", ranks - 1, size),)
    back: tuple[Op, ...] = (_hops(writer, "attention.ring.by_input", 2 * ranks - 1, size),)
    if merged:
        more = _merges(writer, core, merged, ranks)
        keys = _hops(writer, "attention.ring.by_input", ranks - 1, size)
        there, back = (*there, more[0]), (keys, _hops(writer, "attention.ring.gradients", ranks, summed), more[1])
    return replace(
        node,
        forward=(*node.forward, *there),
        dgrad=(*node.dgrad, *back),
        own_overlap=True,
        # What runs now and what arrives meanwhile.
        scratch=2 * size,
        gradient_scratch=node.gradient_scratch + 2 * size + 2 * summed,
    )


def _hops(writer: Writer, name: str, count: int, size: float) -> Op:
    """Sends between neighbours, each at most as far away as half the ring is wide."""
    apart = -(-writer.cut.tp * writer.cut.cp // 2)
    return replace(writer.exchange(name, "send_recv", size, 2, apart), count=count)


def _merges(writer: Writer, core: CoreAttention, merged: Stream, ranks: int) -> list[Op]:
    """What adds the results of blocks up, forward and backward."""
    mixed, rows = core.heads * core.values * writer.value, TOKENS
    both = (("attention.merge", merged), ("attention.merge.by_input", merged.backward))
    return [replace(op, count=op.count * (ranks - 1)) for op in (streamed(*one, mixed, rows) for one in both)]


def _queries_around(writer: Writer, core: CoreAttention, node: TapeNode, ranks: int) -> TapeNode:
    """Queries travel around so many ranks, and partial results with the sums of their softmax return to where they
    belong, in the other direction of each link at the same time. Backward results and their gradients travel with the
    queries, whose gradients return; those of keys and values are summed where these lie."""
    query, result, sums = core.heads * core.head_dim, core.heads * core.values, core.heads * WIDE
    sent, returned = query * writer.value, result * writer.value + sums
    back_sent, back_returned = (query + result) * writer.value + 2 * sums, query * WIDE
    forward, backward = max(sent, returned), max(back_sent, back_returned)
    merges = _merges(writer, core, writer.style.merged or PARTIAL, ranks)
    return replace(
        node,
        forward=(*node.forward, _hops(writer, "attention.ring", ranks - 1, forward), merges[0]),
        dgrad=(*node.dgrad, _hops(writer, "attention.ring.by_input", ranks - 1, backward), merges[1]),
        own_overlap=True,
        scratch=2 * (sent + returned),
        gradient_scratch=node.gradient_scratch + 2 * (back_sent + back_returned),
    )


def _exchanged(writer: Writer, core: CoreAttention, node: TapeNode) -> TapeNode:
    """Ranks trade tokens for heads before, and back after: each runs whole sequences of some heads (Ulysses)."""
    return _traded(writer, core, node, writer.cut.cp)


def _two_levels(writer: Writer, core: CoreAttention, node: TapeNode) -> TapeNode:
    """Neighbours trade tokens for heads, usually inside a node, and keys travel around a ring of as many such groups as
    there are, usually across nodes (Transformer Engine's a2a+p2p): a rank sends as many bytes per hop as in a ring of
    all, and fewer hops."""
    inner, outer = writer.cut.cp_a2a, writer.cut.cp // writer.cut.cp_a2a
    node = node if outer == 1 else _around(writer, core, node, outer)
    return node if inner == 1 else _traded(writer, core, node, inner)


def _traded(writer: Writer, core: CoreAttention, node: TapeNode, ranks: int) -> TapeNode:
    """So many neighbours trade tokens for heads before, and back after."""
    cut, value = writer.cut, writer.value

    def whole(op: Op) -> Op:
        if not isinstance(op, CoreAttention):
            return op
        return replace(op, heads=op.heads // ranks, kv_heads=op.kv_heads // ranks, traded=ranks)

    def trade(name: str, values: float) -> Op:
        return writer.exchange(name, "all_to_all", values * value, ranks, cut.tp)

    into, out = core.heads * core.head_dim + _cached(core), core.heads * core.values
    return replace(
        node,
        forward=(trade("attention.scatter", into), *map(whole, node.forward), trade("attention.gather", out)),
        dgrad=(
            trade("attention.gather.by_input", out),
            *map(whole, node.dgrad),
            trade("attention.scatter.by_input", into),
        ),
        scratch=node.scratch + (into + out) * value,
        gradient_scratch=node.gradient_scratch + (into + out) * value,
    )


def _gathered(writer: Writer, core: CoreAttention, node: TapeNode) -> TapeNode:
    """Every rank gathers all keys and values, and again for the backward pass, which scatters their gradients."""
    cut, size = writer.cut, _cached(core) * writer.value * writer.cut.cp

    def exchange(name: str, op: str) -> Op:
        return writer.exchange(name, op, size, cut.cp, cut.tp)

    return replace(
        node,
        forward=(exchange("attention.keys", "all_gather"), *node.forward),
        dgrad=(
            exchange("attention.keys.again", "all_gather"),
            *node.dgrad,
            exchange("attention.keys.by_input", "reduce_scatter"),
        ),
        scratch=size,
        gradient_scratch=node.gradient_scratch + 2 * size,
    )


_COMMS = {"p2p": _ring, "a2a": _exchanged, "allgather": _gathered, TWO_LEVELS: _two_levels}
