"""Tokens cut into chunks on their way to experts and back, so that one chunk travels while the experts run on another:
the pipelining of Tutel and of FasterMoE, and with both networks at once that of FSMoE.

A technique marks the nodes of a layer between dispatch and combine; here they become stages of a chunk, each in one
lane: the network between nodes, the one inside a node where those are apart, or the chip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from gnomon.graph.ops import Collective, Elementwise, Gemm, Op, Rows, Size
from gnomon.graph.tape import ChunkedExchange, Chunking, ChunkStage, TapeNode

CHIP, NETWORK, NODE = "chip", "network", "node"


def in_chunks(nodes: Sequence[TapeNode]) -> tuple[ChunkedExchange, ...]:
    """The marked nodes, forward and backward."""
    marked = [node for node in nodes if node.chunked is not None]
    if not marked:
        return ()
    how = marked[0].chunked
    assert how is not None
    names = tuple(node.name for node in marked)
    there = tuple(op for node in marked for op in node.forward)
    back = tuple(op for node in reversed(marked) for op in node.dgrad + node.wgrad)
    return tuple(
        ChunkedExchange(nodes=names, backward=backward, whole=ops, ways=tuple(_ways(ops, how)))
        for backward, ops in ((False, there), (True, back))
    )


def _ways(ops: Sequence[Op], how: Chunking) -> Iterator[tuple[int, tuple[ChunkStage, ...]]]:
    for degree in how.degrees:
        yield degree, tuple(_stages((_chunk(op, degree) for op in ops), how.networks))


def _stages(ops: Iterable[Op], networks: int) -> Iterator[ChunkStage]:
    """Neighbours in one lane are one stage."""
    for lane, members in groupby(ops, lambda op: _lane(op, networks)):
        yield ChunkStage(lane, tuple(members))


def _lane(op: Op, networks: int) -> str:
    if not isinstance(op, Collective):
        return CHIP
    return NETWORK if op.op == "all_to_all" or networks == 1 else NODE


def _chunk(op: Op, degree: int) -> Op:
    """The same over one chunk of the tokens; what does not follow them is as long in each."""
    name = f"{op.name}.chunk{degree}"
    if isinstance(op, Collective):
        return replace(op, name=name, rows=_part(op.rows, degree))
    if isinstance(op, Gemm):
        return replace(op, name=name, m=_part(op.m, degree), k=_part(op.k, degree))
    return replace(op, name=name, rows=_part(op.rows, degree)) if isinstance(op, Elementwise) else op


def _part(size: Size, degree: int) -> Size:
    return replace(size, factor=size.factor / degree) if isinstance(size, Rows) else size
