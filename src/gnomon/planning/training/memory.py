"""What a pipeline rank holds over a training step, operator by operator."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import NamedTuple

import numpy as np

from gnomon.cost.tapes import Times, price
from gnomon.engines.training.layer_cost import ops_of, tapes_of
from gnomon.engines.training.split import deferred_bytes
from gnomon.engines.training.stages import ENDS, mode_of
from gnomon.graph import liveness
from gnomon.graph.ops import Op
from gnomon.graph.tape import Tape
from gnomon.planning.training.step import TrainingStep
from gnomon.sim.training import Task
from gnomon.sim.training.base import KINDS

MOST_ROWS = 1_000_000
"""Moments of all ranks together; of a longer step only some tasks are opened."""


class Moment(NamedTuple):
    """From a time on: the bytes a rank holds, and what it does."""

    time_s: float
    bytes: float
    what: str


@dataclass(frozen=True, slots=True)
class MemoryPass:
    """One direction through an embedding, a layer or a head: for each operator its part of the seconds, and the
    bytes live while it runs. `kept` stays between the two directions, and `held` until the last half of the backward
    where that is in halves."""

    names: Sequence[str]
    shares: Sequence[float]
    sizes: Sequence[float]
    kept: float
    held: float

    def at(self, start_s: float, seconds: float, below: float, label: str) -> Iterator[Moment]:
        """Its moments, over what is held beside it."""
        starts = accumulate(self.shares[:-1], initial=0.0)
        for name, share, size in zip(self.names, starts, self.sizes, strict=True):
            yield Moment(start_s + seconds * share, below + size, f"{label}{name}")


class MemoryPiece(NamedTuple):
    """A part of the network on a rank, with its forward and backward seconds."""

    label: str
    forward: MemoryPass
    backward: MemoryPass
    forward_s: float
    backward_s: float
    input_s: float = 0.0
    """The backward by input alone, where that by weight is apart."""
    beside: float = 0.0
    """Bytes of other layers that are recomputed together with it, while it runs backward."""


class RankWalk:
    """One pipeline rank through its tasks."""

    def __init__(self, step: TrainingStep, rank: int) -> None:
        self.step, self.rank = step, rank
        line, memory = step.timeline, step.memory(rank)
        self.pp, self.vp = step.job.strategy.pp, line.times.vp
        self.tasks: Sequence[Task] = line.orders[rank]
        self.starts, self.ends = line.start_s[rank], line.end_s[rank]
        self.passing = float((memory.activations + memory.working)[0])
        self.static = float((memory.total - memory.activations - memory.fullest)[0])

    @cached_property
    def pieces(self) -> list[list[MemoryPiece]]:
        """Of each chunk, from its first piece to its last."""
        chunks, passes = self.step.figures.chunks, _passes(self.step)

        def end(name: str, part: str) -> MemoryPiece:
            seconds = (float(chunks.ends[name][key][0]) for key in ("forward_s", "backward_s", "input_s"))
            return MemoryPiece("", *passes[part], *seconds)

        first, last = end("first", "embedding"), end("last", "head")
        stages, names, shape = chunks.stages, chunks.stages.names, chunks.shape_of(0)
        edges = [0, *accumulate(stages.sizes(shape.parts).tolist())]
        found = []
        for stage, kinds in zip(shape.stages[self.rank].tolist(), stages.parts_of(shape, self.rank), strict=True):
            lead = chunks.kinds[kinds[0] if kinds else 0]
            # What the first layer of a chunk adds is spread over all of them.
            leads = (lead.lead_forward_s, lead.lead_backward_s, lead.lead_input_s)
            forward, backward, by_input = (float(each[0]) / max(len(kinds), 1) for each in leads)
            beside = [float(size[0]) for size in chunks.beside(kinds, np.zeros(1, np.int64))]
            chunk = [
                MemoryPiece(
                    f"layer {edges[stage] + place} ",
                    *passes[names[kind]],
                    float(chunks.kinds[kind].forward_s[0]) + forward,
                    float(chunks.kinds[kind].backward_s[0]) + backward,
                    float(chunks.kinds[kind].input_s[0]) + by_input,
                    beside[place],
                )
                for place, kind in enumerate(kinds)
            ]
            found.append([*([first] if stage == 0 else []), *chunk, *([last] if stage == shape.parts - 1 else [])])
        return found

    @cached_property
    def kept(self) -> list[float]:
        """Bytes a pass through each chunk leaves for its backward."""
        return [sum(piece.forward.held for piece in chunk) for chunk in self.pieces]

    @cached_property
    def highest(self) -> dict[tuple[str, int], float]:
        """Most bytes of each kind of task, over what the other passes in flight hold."""
        return {
            (kind, chunk): max(moment.bytes for moment in self._opened(Task(kind, chunk, 0), 0.0, 0.0))
            for chunk in range(self.vp)
            for kind in KINDS
        }

    @cached_property
    def levels(self) -> list[float]:
        """Most bytes of each task, with what other passes hold."""
        return [
            beside + self.highest[task.kind, task.chunk] for task, beside in zip(self.tasks, self.beside(), strict=True)
        ]

    @cached_property
    def share(self) -> float:
        """What a plan's techniques leave of the bytes that passes take, or make of them: they say it of the fullest
        moment, and the others are taken to follow it."""
        return self.passing / max(self.levels)

    def beside(self) -> Iterator[float]:
        """Bytes that other passes hold while each task runs."""
        in_flight_chunks = [0] * self.vp
        for task in self.tasks:
            in_flight_chunks[task.chunk] -= task.kind in "BW"
            yield sum(count * kept for count, kept in zip(in_flight_chunks, self.kept, strict=True))
            in_flight_chunks[task.chunk] += task.kind == "F"

    def moments(self, most: int) -> Iterator[Moment]:
        if not self.step.applied:
            yield from self._moments(most)
            return
        for time_s, size, what in self._moments(most):
            yield Moment(time_s, self.static + (size - self.static) * self.share, what)

    def _moments(self, most: int) -> Iterator[Moment]:
        together = -(-2 * len(self.tasks) // most)
        if together > 1:
            yield from _highest(self._during(()), together)
        else:
            yield from self._during(self._to_open(most))
        yield from self._after()

    def _during(self, places: Collection[int] | None) -> Iterator[Moment]:
        """The tasks at `places` opened, or all of them; others as one moment; and waiting between them."""
        ends = [*self.starts[1:], self.step.timeline.optimizer_start_s]
        if self.starts[0] > 0:
            yield Moment(0.0, self.static, "waiting")
        for place, (task, beside) in enumerate(zip(self.tasks, self.beside(), strict=True)):
            below, start, end = self.static + beside, self.starts[place], self.ends[place]
            if places is None or place in places:
                yield from self._opened(task, start, below)
            else:
                yield Moment(start, below + self.highest[task.kind, task.chunk], f"{task.kind} {task.micro}")
            if ends[place] > end:
                yield Moment(end, below + (self.kept[task.chunk] if task.kind == "F" else 0.0), "waiting")

    def _after(self) -> Iterator[Moment]:
        line, found = self.step.timeline, self.step.figures
        updated = line.optimizer_start_s + float(found.optimizer_s[0])
        yield Moment(line.optimizer_start_s, self.static, "optimizer")
        if found.gather_s[0] > 0:
            yield Moment(updated, self.static, "gather")
        if self.step.waits_s > 0:
            yield Moment(line.step_s, self.static, "waits")
        yield Moment(line.step_s + self.step.waits_s, self.static, "end")

    def _opened(self, task: Task, start_s: float, below: float) -> Iterator[Moment]:
        """A task operator by operator. What a forward leaves grows piece by piece, what a backward needs shrinks."""
        label = f"{task.kind} {task.micro} "
        if task.kind == "F":
            for piece in self.pieces[task.chunk]:
                yield from piece.forward.at(start_s, piece.forward_s, below, label + piece.label)
                start_s, below = start_s + piece.forward_s, below + piece.forward.held
            return
        if task.kind == "W":
            yield Moment(start_s, below + self.kept[task.chunk], label.strip())
            return
        # What a backward by input leaves stays until that by weight, and is among what is held beside it.
        whole = task.kind == "B"
        below += self.kept[task.chunk] if whole else 0.0
        for piece in reversed(self.pieces[task.chunk]):
            seconds = piece.backward_s if whole else piece.input_s
            below -= piece.backward.held if whole else 0.0
            own = piece.backward.held - piece.backward.kept if whole else -piece.backward.kept
            yield from piece.backward.at(start_s, seconds, below + own + piece.beside, label + piece.label)
            start_s += seconds

    def _to_open(self, most: int) -> set[int] | None:
        """All tasks, or of too many the first and the last of each kind and the fullest of all."""
        pieces = [piece for chunk in self.pieces for piece in chunk]
        operators = sum(len(piece.forward.names) + len(piece.backward.names) for piece in pieces)
        if len(self.tasks) // (2 * self.vp) * operators <= most:
            return None
        first = {(task.kind, task.chunk): place for place, task in reversed(list(enumerate(self.tasks)))}
        last = {(task.kind, task.chunk): place for place, task in enumerate(self.tasks)}
        return {*first.values(), *last.values(), self.levels.index(max(self.levels))}


def memory_over_time(step: TrainingStep, rank: int, most: int | None = None) -> Iterator[Moment]:
    """The moments of a pipeline rank in order of time, each until the next. The highest is the rank's peak.

    With more moments than `most` only the first and the last task of each kind and the fullest are opened, any other
    is one moment with its most bytes, and in the longest steps several of those are one.
    """
    share = MOST_ROWS // step.job.strategy.pp if most is None else most
    return RankWalk(step, rank).moments(share)


def _highest(moments: Iterator[Moment], count: int) -> Iterator[Moment]:
    """So many moments together, as the fullest of them."""
    while several := list(islice(moments, count)):
        yield max(several, key=lambda moment: moment.bytes)._replace(time_s=several[0].time_s)


def _passes(step: TrainingStep) -> dict[str, tuple[MemoryPass, MemoryPass]]:
    """Embedding, layer and head of one micro-batch, forward and backward. The embedding holds nothing back: no gradient
    of an input is waited for, so that its weights need not come later."""
    job = step.job
    tapes = step.figures.chunks.stages.in_roles(tapes_of(job.model, step.cut, step.traits))
    batch = step.batch
    times = price(ops_of([tapes]), step.machine, batch)
    tokens, splits = float(batch.tokens[0]), step.figures.grid.splits[0]
    return {
        name: _both(tape, mode_of(name, job.recipe.recompute), times, tokens, bool(splits) and name != ENDS[0])
        for name, tape in tapes.items()
    }


def _both(tape: Tape, mode: str, times: Times, tokens: float, splits: bool) -> tuple[MemoryPass, MemoryPass]:
    there = [node.forward for node in tape.nodes]
    due, back = liveness.recomputed_before(tape, mode), list[tuple[Op, ...]]()
    for node in reversed(tape.nodes):
        back += [*(one.forward for one in due.get(node.name, ())), node.dgrad + node.wgrad]
    kept = tape.saved_activation_bytes(mode) * tokens
    held = max(kept, deferred_bytes(tape) * tokens) if splits else kept
    return (
        _pass(liveness.forward(tape, mode), there, times, tokens, (kept, held)),
        _pass(liveness.backward(tape, mode), back, times, tokens, (kept, held)),
    )


def _pass(
    moments: Sequence[liveness.Moment],
    ops: Sequence[tuple[Op, ...]],
    times: Times,
    tokens: float,
    stays: tuple[float, float],
) -> MemoryPass:
    seconds = [sum(float(times[op][0]) for op in each) for each in ops]
    whole = sum(seconds)
    shares = [one / whole if whole else 1 / len(seconds) for one in seconds]
    return MemoryPass([name for name, _ in moments], shares, [size * tokens for _, size in moments], *stays)
