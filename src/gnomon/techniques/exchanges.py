"""What techniques share by which fewer tokens travel to experts of other ranks."""

from __future__ import annotations

from dataclasses import replace

from gnomon.graph.ops import Collective, Op
from gnomon.graph.tape import COMBINE, DISPATCH, TapeNode


def fewer_exchanged(node: TapeNode, share: float) -> TapeNode:
    """A node whose exchanges carry a share of what they did; any other node as it is."""
    if node.name not in (DISPATCH, COMBINE):
        return node
    forward, dgrad = (tuple(_scaled(op, share) for op in ops) for ops in (node.forward, node.dgrad))
    return replace(node, forward=forward, dgrad=dgrad)


def _scaled(op: Op, share: float) -> Op:
    if not isinstance(op, Collective) or op.op != "all_to_all":
        return op
    return replace(op, bytes_per_row=op.bytes_per_row * share)
