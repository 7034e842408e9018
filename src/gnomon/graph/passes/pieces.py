"""Tensor-parallel collectives cut into pieces that travel while GEMMs run on others: TorchTitan's async tensor
parallelism (symmetric memory), Megatron-LM's --tp-comm-overlap (userbuffers).

An all-gather before GEMMs comes in as many pieces as there are ranks, the own one first; a reduce-scatter behind a GEMM
leaves piece by piece, the own one last, and what arrived is then added up. Copy engines move the pieces over the links
of a node, so no processor is taken from the GEMMs, but a GEMM over a piece of the rows fills the chip less well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import Collective, Elementwise, Gemm, Op, Rows
from gnomon.graph.tape import Pieces, TapeNode


def in_pieces(nodes: Sequence[TapeNode], writer: Writer) -> tuple[Pieces, ...]:
    """Pairs of a collective and the GEMMs that it overlaps with, where the plan asks for it: gathers before the
    matrices that read them and scatters behind, and backward the gathers of the latter's gradients. What the others
    send backward overlaps with GEMMs by weight as it does without."""
    return tuple(_pairs(nodes, writer)) if writer.cut.tp_overlap and writer.cut.tp > 1 else ()


def _pairs(nodes: Sequence[TapeNode], writer: Writer) -> Iterator[Pieces]:
    for node in nodes:
        for op in node.forward:
            if not _over_ranks(op, writer):
                continue
            assert isinstance(op, Collective)
            gathers = op.op == "all_gather"
            near = [one for one in nodes if (set(node.writes) & set(one.reads) if gathers else _makes(one, node))]
            yield from _pair(node, op, near, backward=False)
            if not gathers:
                yield from _pair(node, node.dgrad[0], near, backward=True)


def _over_ranks(op: Op, writer: Writer) -> bool:
    return isinstance(op, Collective) and op.op in ("all_gather", "reduce_scatter") and op.ranks == writer.cut.tp


def _makes(node: TapeNode, collective: TapeNode) -> bool:
    return bool(set(node.writes) & set(collective.reads))


def _pair(node: TapeNode, op: Op, near: Sequence[TapeNode], *, backward: bool) -> Iterator[Pieces]:
    gemms = [gemm for one in near for gemm in (one.dgrad if backward else one.forward) if isinstance(gemm, Gemm)]
    if not gemms or not isinstance(op, Collective):
        return
    part = op.bytes_per_row / op.ranks
    hop = replace(op, name=f"{op.name}.piece", op="send_recv", bytes_per_row=part, ranks=2, count=op.ranks - 1)
    yield Pieces(
        nodes=(node.name, *(one.name for one in near)),
        backward=backward,
        collective=op,
        gemms=tuple(gemms),
        hop=hop,
        cut=tuple(_piece(gemm, op.ranks) for gemm in gemms),
        after=(_sum(op, part),) if op.op == "reduce_scatter" else (),
    )


def _piece(gemm: Gemm, count: int) -> Gemm:
    """A GEMM over a piece of the rows, as often as there are pieces."""
    assert isinstance(gemm.m, Rows)
    m = replace(gemm.m, factor=gemm.m.factor / count)
    return replace(gemm, name=f"{gemm.name}.piece", m=m, count=gemm.count * count)


def _sum(op: Collective, part: float) -> Elementwise:
    """Partial sums of all ranks added up."""
    return Elementwise(
        name=f"{op.name}.sum", rows=op.rows, read_per_row=part * op.ranks, written_per_row=part, dtype=op.dtype
    )
