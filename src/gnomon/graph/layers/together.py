"""What is trained together with a decoder: towers before it, whose positions are not its tokens, and layers behind it
that predict the tokens after the next (multi-token prediction)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gnomon.graph.layers import NodePass, trained
from gnomon.graph.layers.cut import Cut
from gnomon.graph.layers.ends import embedding, logits_and_loss
from gnomon.graph.layers.layer import layer as write
from gnomon.graph.layers.towers import stem, tail
from gnomon.graph.layers.writer import Writer
from gnomon.graph.ops import Elementwise, Rows
from gnomon.graph.passes.beside import beside, first_learning, fixed, frozen
from gnomon.graph.passes.recompute import recomputing
from gnomon.graph.style import KernelStyle
from gnomon.graph.tape import RESULT, SOURCE, Tape, TapeNode
from gnomon.spec import Block, Model
from gnomon.spec.network import TowerInput

TEXT = "text"
"""The embedding of the text, before what a tower has made is put into it."""
Named = tuple[list[TapeNode], dict[str, float]]
"""Nodes, and the sizes of their tensors."""


def tower_layer(model: Model, tower: int, block: Block, cut: Cut, style: KernelStyle) -> Tape:
    """One layer of a tower, in the tokens of the text beside it."""
    writer, given = _writer(model, tower, cut, style), model.beside[tower]
    nodes, sizes = _beside(model, tower, trained("tower", write(writer, block), writer, ()), writer, cut)
    if given.frozen:
        return Tape(name="layer", nodes=tuple(frozen(nodes)), sizes=sizes)
    return recomputing(nodes, sizes, style)


def with_towers(
    text: Sequence[TapeNode], sizes: Mapping[str, float], model: Model, cut: Cut, style: KernelStyle
) -> Named:
    """What stands before the layers of a tower and after them, then the embedding of the text, and both joined."""
    nodes: list[TapeNode] = []
    held = {**sizes, TEXT: sizes[RESULT]}
    names = {RESULT: TEXT}
    for place, given in enumerate(model.beside):
        name = model.towers[place].name
        for part in ("stem", "tail"):
            writer = _writer(model, place, cut, style)
            own = trained("tower", _end(writer, part, given, model.towers[place].intake.merge > 1), writer, ())
            more, each = _beside(model, place, _learning(own, part, given), writer, cut)
            more, each = _named(more, each, f"{name}.{part}")
            nodes, held = nodes + more, held | each
            if part == "stem":
                nodes.append(_layers(name, given))
    nodes += [
        replace(
            node, writes=tuple(names.get(n, n) for n in node.writes), keeps=tuple(names.get(n, n) for n in node.keeps)
        )
        for node in text
    ]
    join, more_held = _joined(model, 0, cut, style)
    return [*nodes, join], held | more_held


def _layers(name: str, given: TowerInput) -> TapeNode:
    """In the place of its layers, which are tapes of their own."""
    reads, writes = (f"{name}.stem.{RESULT}",), (f"{name}.tail.{SOURCE}",)
    return TapeNode(
        name=f"{name}.layers", reads=reads, writes=writes, passes_on=not given.frozen, detached=given.frozen
    )


def _learning(nodes: list[TapeNode], part: str, given: TowerInput) -> list[TapeNode]:
    """What learns of the ends of a tower: before its layers, or after them."""
    if part == "stem":
        return frozen(nodes) if given.frozen else nodes
    if given.frozen_tail:
        return frozen(nodes) if given.frozen else fixed(nodes)
    return first_learning(nodes) if given.frozen else nodes


def _end(writer: Writer, part: str, given: TowerInput, pooled: bool) -> Iterator[TapeNode]:
    taken = given.taken
    if part == "stem":
        return stem(writer, Rows("prefills", float(taken.patches)))
    return tail(writer, Rows("prefills", taken.merged / taken.sequences), pooled)


def _writer(model: Model, tower: int, cut: Cut, style: KernelStyle) -> Writer:
    """Every rank of a sequence has all of its pictures, and tensor-parallel ranks have all of their positions."""
    taken = model.beside[tower].taken
    own = replace(cut, seq=taken.positions, grid=taken.grid, sequence_parallel=False, cp=1, ep=1, source=0)
    return Writer(model.towers[tower].network, own, style)


def _beside(model: Model, tower: int, nodes: Sequence[TapeNode], writer: Writer, cut: Cut) -> Named:
    return beside(nodes, writer.sizes, model.beside[tower], max(1, cut.seq // cut.cp), model.towers[tower].name)


def _joined(model: Model, tower: int, cut: Cut, style: KernelStyle) -> tuple[TapeNode, dict[str, float]]:
    """Put among the tokens of the text, or held for the layers that attend to it."""
    writer, given, name = Writer(model, cut, style), model.beside[tower], model.towers[tower].name
    rows, size = Rows("prefills", float(given.source)), model.hidden * writer.value
    plain = TapeNode(name=f"{name}.join", reads=(TEXT, f"{name}.tail.{RESULT}"), writes=(RESULT,), passes_on=True)
    if model.attends:
        held = f"{name}.source"
        return replace(plain, writes=(RESULT, held), keeps=(held,)), {held: size * cut.per_token(rows)}
    op, back = (
        Elementwise(name=one, rows=rows, read_per_row=size, written_per_row=size)
        for one in (f"{name}.join", f"{name}.join.by_input")
    )
    return replace(plain, forward=(op,), dgrad=(back,)), {}


def _named(nodes: Sequence[TapeNode], sizes: Mapping[str, float], prefix: str) -> Named:
    """With names of their own, so that they can stand in one tape with others."""

    def named(tensors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{prefix}.{tensor}" for tensor in tensors)

    found = [
        replace(
            node, name=f"{prefix}.{node.name}", reads=named(node.reads), writes=named(node.writes),
            keeps=named(node.keeps), beside=named(node.beside),
        )
        for node in nodes
    ]  # fmt: skip
    return found, {f"{prefix}.{tensor}": size for tensor, size in sizes.items()}


def further_layer(model: Model, block: Block, cut: Cut, style: KernelStyle, passes: Sequence[NodePass] = ()) -> Tape:
    """A layer that predicts the token after the next: what came before it and the embedding of the next token, each
    normed, joined to one stream, and a layer of the decoder's own kind."""
    writer = Writer(model, cut, style)
    nodes = trained("layer", _further(writer, block), writer, passes)
    return recomputing(nodes, writer.sizes, style)


def _further(writer: Writer, block: Block) -> Iterator[TapeNode]:
    hidden, cut, style = writer.model.hidden, writer.cut, writer.style
    share = hidden * cut.share
    table = Writer(replace(writer.model, stem=()), cut, style)
    found, sizes = _named(list(embedding(table)), table.sizes, "mtp")
    writer.sizes |= sizes
    yield from (replace(node, parameters=0.0) for node in found)
    yield writer.norm("mtp.norm", SOURCE, "mtp.normed")
    yield writer.norm("mtp.embedding_norm", f"mtp.{RESULT}", "mtp.next")
    joined = writer.elementwise(
        "mtp.join", style.total, 2 * hidden, ("mtp.normed", "mtp.next"), {"mtp.joined": 2 * share}, False, cut.rows
    )
    yield replace(joined, passes_on=True, kernel=None)
    read = yield from writer.enter("mtp", "mtp.joined", 2 * hidden)
    made = "mtp.stream" if cut.tp == 1 else "mtp.part"
    project = writer.linear("mtp.project", "", read, {made: hidden // cut.tp}, 2 * hidden, dtype=cut.dtype)
    yield replace(project, parameters=float(hidden * 2 * hidden // cut.tp))
    if cut.tp > 1:
        writer.sizes["mtp.stream"] = writer.stream
        yield writer.collective("mtp.leave", "all_gather", (made,), ("mtp.stream",))
    for node in write(writer, block):
        yield replace(
            node,
            reads=tuple("mtp.stream" if name == SOURCE else name for name in node.reads),
            keeps=tuple("mtp.stream" if name == SOURCE else name for name in node.keeps),
        )


def further_heads(model: Model, cut: Cut, style: KernelStyle, passes: Sequence[NodePass] = ()) -> Named:
    """The heads of layers that predict further tokens: norms of their own, the model's matrix, and a loss each."""
    nodes: list[TapeNode] = []
    sizes: dict[str, float] = {}
    for place in range(sum(block.count for block in model.mtp)):
        writer, prefix = Writer(model, cut, style), f"mtp{place + 1}"
        own = trained("head", _further_head(writer), writer, passes)
        more, held = _named(own, writer.sizes, prefix)
        # Its stream has come beside the one that the model's own head reads.
        begin = TapeNode(name=f"{prefix}.begin", writes=(f"{prefix}.{SOURCE}",))
        nodes, sizes = [*nodes, begin, *more], sizes | held
    return nodes, sizes


def _further_head(writer: Writer) -> Iterator[TapeNode]:
    writer.sizes[RESULT] = 0.0
    yield writer.norm("head.norm", SOURCE, "normed", writer.style.last_norm)
    for node in logits_and_loss(writer, "normed"):
        yield replace(node, parameters=0.0)
