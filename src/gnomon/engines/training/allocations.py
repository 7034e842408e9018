"""What PyTorch's allocator reserves for training steps: every tensor of them allocated and freed, in order.

Freed blocks are taken by whatever comes next, so that what lies in them decides what fits later. The first update makes
the optimizer's states in blocks that activations and logits have left, and the next step needs others in their place:
the allocator reserves more than was ever allocated, by 1 to 22% of steps measured on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gnomon.engines.training.allocator import CachingAllocator, MemoryBlock, OutOfMemory
from gnomon.engines.training.traits import Optimizer
from gnomon.graph.tape import RESULT, SOURCE, Tape, TapeNode

STEPS = 3
"""The second has all states, and the third what the second left."""
MOMENTS = 2
"""Tensors of states per parameter tensor."""
Live = dict[str, MemoryBlock | None]
Gradients = dict[tuple[int, str], MemoryBlock | None]
"""By the tape and the node of their weights."""


@dataclass(frozen=True, slots=True)
class Allocations:
    """The most that was allocated, and reserved; where memory runs out, of as much memory as they need."""

    allocated_bytes: float
    reserved_bytes: float
    fits: bool


def allocations(
    tapes: Sequence[Tape], mode: str, tokens: int | Sequence[int], micros: int, states: Optimizer,
    capacity_bytes: float, buckets: bool = False, frozen_bytes: float | None = None,
) -> Allocations:  # fmt: skip
    """Steps of one rank that holds all of a network: embedding, layers and head in order, `micros` passes each, of so
    many tokens; of several numbers, one after the other and again."""
    fits, ran = True, CachingAllocator(capacity_bytes)
    each = (tokens,) if isinstance(tokens, int) else tuple(tokens)
    try:
        _Steps(ran, tapes, mode, each[0], states, frozen_bytes).run(micros, buckets, each)
    except OutOfMemory:
        fits, ran = False, CachingAllocator()
        _Steps(ran, tapes, mode, each[0], states, frozen_bytes).run(micros, buckets, each)
    return Allocations(ran.most_allocated_bytes, ran.most_reserved_bytes, fits)


@dataclass(frozen=True, slots=True)
class _Steps:
    card: CachingAllocator
    tapes: Sequence[Tape]
    mode: str
    tokens: int
    states: Optimizer
    frozen_bytes: float | None = None
    """Of a frozen weight, where it takes less than a trained one."""

    def run(self, micros: int, buckets: bool, tokens: Sequence[int]) -> None:
        held = [node for tape in self.tapes for node in tape.nodes if node.parameters]
        for node in held:
            self.card.allocate(self._at_rest(node))
            self.card.allocate(node.parameters * self.states.gradient_bytes * (buckets and not node.frozen))
        matrices = [node.parameters for node in held if not node.frozen]
        for step in range(STEPS):
            gradients: Gradients = {}
            for micro in range(micros):
                one = replace(self, tokens=tokens[(step * micros + micro) % len(tokens)])
                one._backward(one._forward(), gradients)
            for parameters in matrices if step == 0 else ():
                for _ in range(MOMENTS):
                    self.card.allocate(parameters * self.states.state_bytes / MOMENTS)
            for block in gradients.values():
                self.card.release(block)

    def _at_rest(self, node: TapeNode) -> float:
        """Bytes of a node's weights."""
        each = self.frozen_bytes if node.frozen and self.frozen_bytes else self.states.weight_bytes
        return node.packed_bytes or node.parameters * each

    def _mode(self, place: int) -> str:
        """Neither the embedding nor the head is recomputed."""
        return self.mode if 0 < place < len(self.tapes) - 1 else "none"

    def _forward(self) -> list[tuple[Live, Live, MemoryBlock | None]]:
        """What each tape leaves for its backward pass, copies of its weights, and what it was given."""
        left, given = [], None
        for place, tape in enumerate(self.tapes):
            copies: Live = {}
            stays = tape.stays(self._mode(place))
            live: Live = {SOURCE: given}
            self._pass(tape, place, tape.nodes, stays, live, copies)
            result, source = live.pop(RESULT, None), live.pop(SOURCE)
            kept = SOURCE in stays or self._mode(place) == "full"
            if not kept:
                self.card.release(source)
            left.append((live, copies, source if kept else None))
            given = result
        for place, (_, copies, _) in enumerate(left):  # copies of recomputed layers go with the forward pass
            if self._mode(place) == "full":
                self._drop(copies, set())
        self.card.release(given)
        return left

    def _backward(self, left: list[tuple[Live, Live, MemoryBlock | None]], gradients: Gradients) -> None:
        last = self.tapes[-1]
        gradient = self.card.allocate(last.sizes.get(RESULT, 0.0) * self.tokens)
        for place, tape in reversed(list(enumerate(self.tapes))):
            live, copies, source = left[place]
            gradient = self._gradients(tape, place, {**live, SOURCE: source}, copies, gradient, gradients)
            self.card.release(source)
        self.card.release(gradient)

    def _weight(self, node: TapeNode, at: int) -> tuple[float, int]:
        """Parameters that a node multiplies by, and the tape they belong to: a tied head's are the embedding's."""
        if node.wgrad and not node.parameters:
            return self.tapes[0].parameters, 0
        return 0.0 if node.frozen else node.parameters, at

    def _release(self, blocks: list[MemoryBlock | None]) -> None:
        while blocks:
            self.card.release(blocks.pop())

    def _pass(
        self, tape: Tape, at: int, nodes: Sequence[TapeNode], stays: frozenset[str] | set[str], live: Live, copies: Live
    ) -> None:
        """Forward: a tensor goes when nothing later reads it and nothing holds it for its gradient. Copies of the
        weights that GEMMs read, which an embedding's are not, are made one by one."""
        for place, node in enumerate(nodes):
            if at > 0 and self.states.copy_bytes:
                copies[node.name] = self.card.allocate(self._weight(node, at)[0] * self.states.copy_bytes)
            for name in node.writes:
                if name not in live:
                    live[name] = self.card.allocate(tape.sizes[name] * self.tokens)
            self._release([self.card.allocate(node.scratch * self.tokens), self.card.allocate(node.unpacked_bytes)])
            later = {name for rest in nodes[place + 1 :] for name in rest.reads}
            self._drop(live, {SOURCE, RESULT} | later | stays)

    def _drop(self, live: Live, needed: set[str]) -> None:
        for name in [name for name in live if name not in needed]:
            self.card.release(live.pop(name))

    def _gradients(
        self, tape: Tape, at: int, live: Live, copies: Live, gradient: MemoryBlock | None, gradients: Gradients
    ) -> MemoryBlock | None:
        """Backward: what is recomputed, then node by node; the gradient of what the tape was given."""
        recomputed = tape.recomputed(self._mode(at))
        if recomputed:
            needed = {name for node in tape.nodes for name in node.keeps} | set(live)
            self._pass(tape, at, recomputed, needed, live, copies)
            self._drop(live, needed | {SOURCE})
        owner: dict[str, int] = {RESULT: 0}
        buffers: dict[int, MemoryBlock | None] = {0: gradient}
        for place, node in reversed(list(enumerate(tape.nodes))):
            passing = [self.card.allocate(node.gradient_scratch * self.tokens)]
            passing.append(self.card.allocate(node.unpacked_bytes))
            passing += self._buffered(tape, node, owner, buffers)
            parameters, whose = self._weight(node, at)
            if parameters:
                weight = (whose, node.name if whose == at > 0 else "")
                made = self.card.allocate(parameters * self.states.gradient_bytes)
                passing += [made] if weight in gradients else []
                gradients.setdefault(weight, made)
            passing.append(copies.pop(node.name, None))
            self._release(passing)
            for name in node.writes:
                owner.pop(name, None)
            for one in [one for one in buffers if one not in owner.values()]:
                self.card.release(buffers.pop(one))
            self._drop(live, {SOURCE} | {name for rest in tape.nodes[:place] for name in rest.keeps})
        return buffers.get(owner[SOURCE]) if SOURCE in owner else None

    def _buffered(
        self, tape: Tape, node: TapeNode, owner: dict[str, int], buffers: dict[int, MemoryBlock | None]
    ) -> Iterator[MemoryBlock | None]:
        """Gradients of what a node reads; a second one of a tensor is added to the first and goes."""
        for name in node.gradients:
            if node.passes_on:
                owner.setdefault(name, owner[node.writes[0]])
            elif name in owner:
                yield self.card.allocate(tape.sizes[name] * self.tokens)
            else:
                owner[name] = max(buffers, default=0) + 1
                buffers[owner[name]] = self.card.allocate(tape.sizes[name] * self.tokens)


def in_order(parts: Mapping[str, Tape], layers: Sequence[str]) -> list[Tape]:
    """The tapes of a network, layer by layer."""
    return [parts["embedding"], *(parts[name] for name in layers), parts["head"]]
