"""Recomputation: what stays between forward and backward, and what the backward pass runs again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gnomon.graph.ops import Collective, Gemm
from gnomon.graph.passes.quantise import NARROW
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import RESULT, SOURCE, Recomputed, Tape, TapeNode
from gnomon.spec.recompute import FULL, INSIDE, MODULES, OP, SELECTIVE, Module, parse

SAVED = ("reduce_scatter", "all_to_all")
"""Collectives whose results are saved where operators are chosen one by one (TorchTitan's list)."""


def recomputing(nodes: Sequence[TapeNode], sizes: dict[str, float], style: KernelStyle) -> Tape:
    """A layer as a tape, with every way to recompute it."""
    written = tuple(nodes)
    return Tape(name="layer", nodes=written, sizes=sizes, recompute=_Recomputing(written, style))


class _Recomputing:
    """What is recomputed of a layer, by mode."""

    def __init__(self, nodes: tuple[TapeNode, ...], style: KernelStyle) -> None:
        self.nodes, self.style = nodes, style
        self._found: dict[str, Recomputed] = {}

    def __call__(self, mode: str) -> Recomputed:
        if mode not in self._found:
            self._found[mode] = self._of(mode)
        return self._found[mode]

    def _of(self, mode: str) -> Recomputed:
        nodes, style = self.nodes, self.style
        if mode in (FULL, INSIDE):
            stays = frozenset({SOURCE}) if mode == FULL else frozenset[str]()
            return Recomputed(stays, (_names(_until_last(nodes, style)),))
        if mode == OP or (mode == SELECTIVE and style.alternate_gemms):
            casts = frozenset(tensor for node in nodes for tensor in node.writes if tensor.endswith(NARROW))
            return _by_operator(_chosen(nodes), style, casts)
        if mode == SELECTIVE and style.stop_early:
            return _by_operator(nodes, style)
        if mode == SELECTIVE:
            return _in_parts(nodes, [(_names(node for node in nodes if node.cheap), False)])
        return _by_module(nodes, [MODULES[name] for name in parse(mode).modules])


def _names(nodes: Sequence[TapeNode] | Iterator[TapeNode]) -> frozenset[str]:
    return frozenset(node.name for node in nodes)


def _until_last(nodes: Sequence[TapeNode], style: KernelStyle) -> Sequence[TapeNode]:
    """What a checkpoint of all nodes runs again: all, or until the last tensor that a gradient needs is there."""
    if not style.stop_early:
        return nodes
    last = max((place for place, node in enumerate(nodes) if node.keeps), default=0)
    # A GEMM saves its operands before it runs, a norm what it makes.
    last += not nodes[last].wgrad and bool({*nodes[last].keeps} & {*nodes[last].writes})
    return nodes[:last]


def _by_operator(nodes: Sequence[TapeNode], style: KernelStyle, casts: frozenset[str] = frozenset()) -> Recomputed:
    """A checkpoint of the layer that saves the results of some operators; `casts` beside them are recomputed."""
    outputs = frozenset(tensor for node in nodes if not node.cheap for tensor in node.writes)
    again = _names(node for node in _until_last(nodes, style) if node.cheap)
    return Recomputed((outputs - casts | {SOURCE}) - {RESULT}, (again,))


def _chosen(nodes: Sequence[TapeNode]) -> list[TapeNode]:
    """By operator: results of every second GEMM with weights, frozen ones too, of attention and of the
    collectives of `SAVED` are saved, and all others recomputed."""
    found, place = [], 0
    for node in nodes:
        matrix = bool(node.wgrad) or (node.frozen and any(isinstance(op, Gemm) for op in node.forward))
        place += matrix
        saved = any(isinstance(op, Collective) and op.op in SAVED for op in node.forward)
        fused = node.name.endswith(".core")
        found.append(replace(node, cheap=place % 2 == 0 if matrix else not saved and not fused))
    return found


def _by_module(nodes: Sequence[TapeNode], modules: Sequence[Module]) -> Recomputed:
    names = [node.name for node in nodes]
    found = [(module.of(names), module.discards) for module in modules]
    # One inside another is recomputed with it, and keeps nothing of its own.
    outer = [one for one in found if one[0] and not any(one[0] < other for other, _ in found)]
    return _in_parts(nodes, outer)


def _in_parts(nodes: Sequence[TapeNode], parts: Sequence[tuple[frozenset[str], bool]]) -> Recomputed:
    """Parts of a layer, each with whether its output goes as well. Their inputs stay, unless another part makes them
    again."""
    again = frozenset().union(*(names for names, _ in parts))
    gone = {tensor for names, discards in parts if discards for tensor in _written(nodes, names)}
    lasting = {tensor for node in nodes if node.name not in again for tensor in node.keeps}
    for names, _ in parts:
        taken = {tensor for node in nodes if node.name in names for tensor in (*node.reads, *node.keeps)}
        lasting |= taken - _written(nodes, names)
    return Recomputed(frozenset(lasting - gone), tuple(names for names, _ in parts), at_once=False)


def _written(nodes: Sequence[TapeNode], names: frozenset[str]) -> set[str]:
    return {tensor for node in nodes if node.name in names for tensor in node.writes}
