"""Recomputation: what stays between forward and backward, and what the backward pass runs again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnomon.graph.ops import Gemm
from gnomon.graph.passes.quantise import NARROW
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import RESULT, SOURCE, Tape, TapeNode


def recomputing(nodes: Sequence[TapeNode], sizes: dict[str, float], style: KernelStyle) -> Tape:
    """A layer as a tape, with every way to recompute it."""
    if style.alternate_gemms:
        nodes = list(_alternate(nodes))
    kept = frozenset(tensor for node in nodes for tensor in node.keeps)
    outputs = frozenset(tensor for node in nodes if not node.cheap for tensor in node.writes)
    if style.alternate_gemms:  # what is saved is the result of an operator, and casts are recomputed
        outputs = frozenset(tensor for tensor in outputs if not tensor.endswith(NARROW))
    inside = frozenset(tensor for node in nodes if node.cheap for tensor in node.writes)
    lasting = kept & frozenset(tensor for node in nodes if not node.cheap for tensor in node.keeps)
    last = max(place for place, node in enumerate(nodes) if node.keeps)
    # A GEMM saves its operands before it runs, a norm what it makes.
    last += not nodes[last].wgrad and bool({*nodes[last].keeps} & {*nodes[last].writes})
    recomputed = nodes[:last] if style.stop_early else nodes
    stored = (outputs | {SOURCE}) - {RESULT} if style.stop_early else lasting | (kept - inside) | {SOURCE}
    return Tape(
        name="layer",
        nodes=tuple(nodes),
        sizes=sizes,
        stored={"full": frozenset({SOURCE}), "selective": frozenset(stored)},
        recomputes={
            "full": frozenset(node.name for node in recomputed),
            "selective": frozenset(node.name for node in recomputed if node.cheap),
        },
    )


def _alternate(nodes: Sequence[TapeNode]) -> Iterator[TapeNode]:
    """Every second GEMM with weights as cheap as what is always recomputed."""
    place = 0
    for node in nodes:
        matrix = bool(node.wgrad) or (node.frozen and any(isinstance(op, Gemm) for op in node.forward))
        place += matrix
        yield replace(node, cheap=True) if matrix and place % 2 == 0 else node
