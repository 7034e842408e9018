"""Gradients: what the backward pass runs, derived from what the forward pass runs.

A GEMM has two: by its input (dgrad) and by its weights (wgrad). Attention has its backward kernel, a kernel that
streams memory the one its engine has for it, a collective its dual. Operators of the backward pass are named after
those of the forward pass: `by_input` and `by_weight`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import (
    TOKENS,
    Attention,
    Collective,
    Elementwise,
    Gemm,
    IndexScores,
    LatentDecode,
    Op,
    Scan,
)
from gnomon.graph.source_attention import SourceAttention
from gnomon.graph.streams import streamed
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import TapeNode

DUALS = {"all_gather": "reduce_scatter", "reduce_scatter": "all_gather", "all_to_all": "all_to_all"}
"""The collective that a gradient takes back; that of an all-reduce is already on every rank."""


def differentiate(nodes: Sequence[TapeNode], style: KernelStyle) -> list[TapeNode]:
    """Every node with its gradients; what it brings itself stays. The gradient of a GEMM by its input needs the weights
    alone, so a frozen one saves nothing."""
    nodes = [replace(node, keeps=()) if _saves_nothing(node) else node for node in nodes]
    kept = {tensor for node in nodes for tensor in node.keeps}
    return [_differentiated(node, style, kept) for node in nodes]


def _saves_nothing(node: TapeNode) -> bool:
    return node.forward_only or (node.frozen and any(map(_weighted, node.forward)))


def _differentiated(node: TapeNode, style: KernelStyle, kept: Collection[str]) -> TapeNode:
    if node.forward_only:
        return replace(node, keeps=(), dgrad=(), wgrad=(), detached=True, passes_on=False, beside=())
    given = () if node.detached else tuple(back for op in node.forward for back in _dgrad(op, node, kept))
    dgrad = node.dgrad or given
    wgrad = node.wgrad or tuple(_wgrad(op, style) for op in node.forward if _weighted(op))
    wgrad = () if node.frozen else wgrad
    summed = any(isinstance(op, Collective) and op.op == "all_reduce" for op in node.forward)
    return replace(node, dgrad=dgrad, wgrad=wgrad, passes_on=node.passes_on or (summed and bool(node.reads)))


def _weighted(op: Op) -> bool:
    """Whether one of its operands is a matrix of weights, whose sizes do not follow the batch."""
    return isinstance(op, Gemm) and isinstance(op.n, int) and isinstance(op.k, int)


def _wgrad(op: Op, style: KernelStyle) -> Op:
    assert isinstance(op, Gemm)
    return replace(op, name=f"{op.name}.by_weight", m=op.n, n=op.k, k=op.m, out_dtype=style.gradient_dtype)


def _dgrad(op: Op, node: TapeNode, kept: Collection[str]) -> Iterator[Op]:
    name = f"{op.name}.by_input"
    match op:
        case Gemm():
            yield replace(op, name=name, n=op.k, k=op.n)
        case Attention() | SourceAttention() | Scan() | LatentDecode() | IndexScores():
            yield replace(op, name=name, phase="backward")
        case Elementwise() if node.kernel is not None:
            stream, size = node.kernel
            yield streamed(name, stream.backward, size, op.rows)
        case Elementwise() if not node.passes_on:
            yield replace(op, name=name, read_per_row=op.written_per_row, written_per_row=op.read_per_row)
        case Collective(op="all_gather") if node.writes[0] not in kept and node.reads[0] in kept:
            # What was saved is the shard, which the GEMM by weight needs gathered again.
            yield replace(op, name=f"{op.name}.again")
            yield replace(op, name=name, op="reduce_scatter")
        case Collective() if op.op in DUALS:
            yield replace(op, name=name, op=DUALS[op.op])  # type: ignore[arg-type]


def add_up(nodes: Sequence[TapeNode], writer: Writer) -> list[TapeNode]:
    """A tensor that several nodes read has as many gradients, which are added one by one. One that is handed on as it
    is comes first."""
    readers: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        for tensor in node.gradients:
            readers.setdefault(tensor, []).append(place)
    found = list(nodes)
    for tensor, places in readers.items():
        for place in sorted(places, key=lambda place: not nodes[place].passes_on)[1:]:
            node = found[place]
            more = streamed(f"{node.name}.total", writer.style.total, writer.sizes[tensor] / writer.wide, TOKENS)
            found[place] = replace(node, dgrad=(*node.dgrad, more))
    return found
