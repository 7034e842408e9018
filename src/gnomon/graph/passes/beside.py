"""A tower's operators in the tokens of the text that it is trained beside, which is what a batch counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from gnomon.graph.core import CoreAttention
from gnomon.graph.ops import Gemm, Op, Rows
from gnomon.graph.tape import SOURCE, TapeNode
from gnomon.spec.network import TowerInput


def beside(
    nodes: Iterable[TapeNode], sizes: Mapping[str, float], given: TowerInput, seq: int, prefix: str
) -> tuple[list[TapeNode], dict[str, float]]:
    """Nodes over the sequences of a tower as nodes over texts of `seq` tokens each, `prefix` before the names of their
    operators."""
    per_token = given.sequences * given.taken.positions / seq
    found = [_beside(node, given, per_token, prefix) for node in nodes]
    return found, {name: size * per_token for name, size in sizes.items()}


def _beside(node: TapeNode, given: TowerInput, per_token: float, prefix: str) -> TapeNode:
    def ops(found: tuple[Op, ...]) -> tuple[Op, ...]:
        return tuple(_scaled(op, given, per_token, prefix) for op in found)

    return replace(
        node, forward=ops(node.forward), dgrad=ops(node.dgrad), wgrad=ops(node.wgrad),
        scratch=node.scratch * per_token, gradient_scratch=node.gradient_scratch * per_token,
    )  # fmt: skip


def _scaled(op: Op, given: TowerInput, per_token: float, prefix: str) -> Op:
    changed: dict[str, Any] = {"name": f"{prefix}.{op.name}"}
    if isinstance(op, CoreAttention):
        changed["each"] = (given.sequences, given.taken.positions)
    for field in fields(op):
        size = getattr(op, field.name)
        if isinstance(size, Rows):
            times = given.sequences if size.of == "prefills" else per_token
            changed[field.name] = Rows(size.of, size.factor * times)
    return replace(op, **changed)


def frozen(nodes: Iterable[TapeNode]) -> list[TapeNode]:
    """Nodes that run forward alone: nothing before them learns, and they do not."""
    return [
        replace(
            _fixed(node), dgrad=(), keeps=(), detached=True, passes_on=False, gradient_scratch=0.0, own_overlap=False,
            beside=(),
        )
        for node in nodes
    ]  # fmt: skip


def fixed(nodes: Iterable[TapeNode]) -> list[TapeNode]:
    """Nodes that do not learn, behind something that does: they hand gradients on."""
    return [_fixed(node) for node in nodes]


def _fixed(node: TapeNode) -> TapeNode:
    """What a GEMM saves for the gradient of its weights it need not save."""
    return replace(node, wgrad=(), keeps=() if node.wgrad else node.keeps, frozen=True)


def first_learning(nodes: Iterable[TapeNode]) -> list[TapeNode]:
    """Nodes of which nothing before them learns: what the first read gets no gradient from a GEMM."""
    return [
        replace(node, detached=True, dgrad=tuple(op for op in node.dgrad if not isinstance(op, Gemm)))
        if SOURCE in node.reads
        else node
        for node in nodes
    ]
