"""Which bytes are live while a tape runs, operator by operator: forward, and back again.

The rules are those of reference counting: a tensor goes when nothing later reads it and nothing holds it for its
gradient. Bytes are per token; the tensor a tape begins with counts to it, the one it ends with to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gnomon.graph.tape import RESULT, SOURCE, Tape, TapeNode

Moment = tuple[str, float]
"""An operator, and the live bytes per token while it runs."""


def forward(tape: Tape, mode: str) -> list[Moment]:
    """Live bytes at each operator of the forward pass."""
    return list(_forward(tape, tape.nodes, tape.stays(mode), {SOURCE}))


def backward(tape: Tape, mode: str) -> list[Moment]:
    """Live bytes at each operator of the backward pass, which begins with what stayed and the gradient of the
    result."""
    return list(_gradients(tape, tape.stays(mode), recomputed_before(tape, mode)))


def recomputed_before(tape: Tape, mode: str) -> dict[str, tuple[TapeNode, ...]]:
    """Nodes that run forward again before the gradient of a node, in order, by its name: all of them before the first,
    or each part where something that it makes is wanted."""
    found = tape.recomputing(mode)
    if found.at_once:
        again = tape.recomputed(mode)
        return {tape.nodes[-1].name: again} if again else {}
    parts = [tuple(node for node in tape.nodes if node.name in names) for names in found.parts]
    there, due = set(found.stays), dict[str, tuple[TapeNode, ...]]()
    for node in reversed(tape.nodes):
        wanted, now = set(node.keeps) - there, set[str]()
        while part := next((one for one in parts if wanted & _made(one)), ()):
            parts.remove(part)
            now |= {one.name for one in part}
            there |= _made(part)
            wanted = (wanted | {tensor for one in part for tensor in one.reads}) - there
        if now:
            due[node.name] = tuple(one for one in tape.nodes if one.name in now)
    return due


def _made(nodes: Iterable[TapeNode]) -> set[str]:
    return {tensor for node in nodes for tensor in node.writes}


def _forward(tape: Tape, nodes: Sequence[TapeNode], stays: Collection[str], start: Collection[str]) -> Iterator[Moment]:
    sizes, live = tape.sizes, set(start)
    for place, node in enumerate(nodes):
        live.update(node.writes)
        yield node.name, sum(sizes[name] for name in sorted(live)) + node.scratch
        later = {name for rest in nodes[place + 1 :] for name in rest.reads}
        live = {name for name in live if name in later or name in stays or name == RESULT}


class _Gradients:
    """Buffers of gradients: a node that passes its gradient on shares one buffer among its inputs."""

    def __init__(self) -> None:
        self.buffer: dict[str, int] = {RESULT: 0}
        self.made = 1

    def give(self, name: str, buffer: int | None = None) -> bool:
        """A gradient for a tensor, in a buffer of its own unless one is handed on. False where it had one: the two
        are added in place and the new buffer goes."""
        if name in self.buffer:
            return False
        if buffer is None:
            buffer, self.made = self.made, self.made + 1
        self.buffer[name] = buffer
        return True


def _gradients(tape: Tape, stays: Collection[str], due: Mapping[str, Sequence[TapeNode]]) -> Iterator[Moment]:
    sizes, state, live = tape.sizes, _Gradients(), set(stays)
    width = {0: sizes[RESULT]}
    kept = [frozenset[str]()]
    for node in tape.nodes:
        kept.append(kept[-1].union(node.keeps))
    pending = dict(due)
    for place, node in reversed(list(enumerate(tape.nodes))):
        if again := pending.pop(node.name, ()):
            # The source of a layer that is recomputed with those before it is what they have given again.
            live |= {SOURCE} & {name for one in again for name in one.reads}
            held = sum(width[buffer] for buffer in {*state.buffer.values()})
            needed = kept[place + 1] | live
            yield from ((name, held + size) for name, size in _forward(tape, again, needed, live))
            live |= _made(again) & needed
        extra = node.gradient_scratch
        if node.passes_on:
            shared = state.buffer[node.writes[0]]
            for name in node.gradients:
                state.give(name, shared)
        else:
            for name in node.gradients:
                if state.give(name):
                    width[state.buffer[name]] = sizes[name]
                else:
                    extra += sizes[name]
        used = {buffer: width[buffer] for buffer in state.buffer.values()}
        yield node.name, sum(sizes[name] for name in sorted(live)) + sum(used.values()) + extra
        for name in node.writes:
            state.buffer.pop(name, None)
        later = kept[place] | {name for nodes in pending.values() for one in nodes for name in one.reads}
        live &= later
