"""Which bytes are live while a tape runs, operator by operator: forward, and back again.

The rules are those of reference counting: a tensor goes when nothing later reads it and nothing holds it for its
gradient. Bytes are per token; the tensor a tape begins with counts to it, the one it ends with to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from gnomon.graph.tape import RESULT, SOURCE, Tape, TapeNode

Moment = tuple[str, float]
"""An operator, and the live bytes per token while it runs."""


def forward(tape: Tape, mode: str) -> list[Moment]:
    """Live bytes at each operator of the forward pass."""
    return list(_forward(tape, tape.nodes, tape.stays(mode), {SOURCE}))


def backward(tape: Tape, mode: str) -> list[Moment]:
    """Live bytes at each operator of the backward pass, which begins with what stayed and the gradient of the
    result."""
    sizes = tape.sizes
    live = set(tape.stays(mode))
    moments: list[Moment] = []
    held = sizes[RESULT]
    recomputed = tape.recomputed(mode)
    if recomputed:
        needed = frozenset(name for node in tape.nodes for name in node.keeps) | live
        moments += [(name, held + size) for name, size in _forward(tape, recomputed, needed, live)]
        live |= {name for node in recomputed for name in node.writes if name in needed}
    return moments + list(_gradients(tape, live))


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


def _gradients(tape: Tape, live: set[str]) -> Iterator[Moment]:
    sizes, state = tape.sizes, _Gradients()
    width = {0: sizes[RESULT]}
    for place, node in reversed(list(enumerate(tape.nodes))):
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
        live = {name for name in live if any(name in rest.keeps for rest in tape.nodes[:place])}
