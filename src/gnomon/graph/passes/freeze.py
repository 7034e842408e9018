"""Weights that are not trained: of a whole part of a network, before its gradients are derived."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gnomon.graph.layers.writer import Writer
from gnomon.graph.tape import TapeNode


def freeze(nodes: Iterable[TapeNode], writer: Writer, first: bool = False) -> list[TapeNode]:
    """Nodes without gradients of their weights. `first` is of those that nothing trained stands before: they have no
    gradient at all."""
    return [_frozen(node, writer, first) for node in nodes]


def _frozen(node: TapeNode, writer: Writer, first: bool) -> TapeNode:
    copies = f"{node.name}.copies"
    if copies in node.keeps:  # of a norm as plain operators, what its weight is multiplied with need not stay
        made = sum(writer.sizes[name] for name in node.writes if name != copies)
        writer.sizes[copies] = max(0.0, writer.sizes[copies] - made)
    return replace(node, frozen=True, keeps=() if first else node.keeps, detached=first or node.detached)
