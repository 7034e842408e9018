"""Operators of a step that run at the same time, in lanes: what of their seconds overlaps with others.

A lane is what keeps its operators in order: a resource that they need, or a stream. A technique says which operator is
in which lane and what a step's lanes take together; lines of a breakdown then show what is left of each lane, and their
sum is the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np

from gnomon.graph.ops import Op
from gnomon.graph.phases import part_of
from gnomon.spec.answers import OperatorTime
from gnomon.spec.workload import Floats

EXPOSED = ", exposed"
"""Ends the name of a line that shows less than its operator takes."""


class Overlap(Protocol):
    """Lanes by number. What they take together never shrinks where one of them grows, is no less than the longest lane
    and no more than all of them one after the other, and scales with all of them."""

    @property
    def lanes(self) -> int:
        """How many there are."""

    @property
    def decode(self) -> int:
        """The lane of what follows decodes alone: their attention."""

    @property
    def prefill(self) -> int:
        """The lane of what follows prompts alone."""

    def lane(self, op: Op) -> int | None:
        """Of an operator that follows a step's tokens; None where it overlaps with nothing."""

    def exposed(self, lanes: Floats) -> Floats:
        """What is left of the seconds of each lane (a row each, a column per step)."""


class PricedOp(NamedTuple):
    """An operator in some steps."""

    op: Op
    line: OperatorTime
    each: Floats
    """Its seconds in each step."""
    clocked_s: float
    """Those of all steps that follow the clock."""


def lane_of(overlap: Overlap, op: Op) -> int | None:
    """Logits come after all layers, so they overlap with nothing."""
    part = part_of(op)
    if part in ("decode", "prefill"):
        return overlap.decode if part == "decode" else overlap.prefill
    return None if part == "logits" else overlap.lane(op)


def hidden(overlap: Overlap, lanes: Floats) -> Floats:
    """Seconds of every step that lie behind other lanes."""
    return np.asarray(lanes.sum(axis=0) - overlap.exposed(lanes).sum(axis=0))


def overlapped(overlap: Overlap, priced: Sequence[PricedOp]) -> list[PricedOp]:
    """The same operators with what is left of each, in its draws too. Draws are those of the mean step."""
    if not priced:
        return []
    lanes = [lane_of(overlap, one.op) for one in priced]
    seconds = _by_lane(overlap, lanes, [one.each for one in priced])
    drawn = _by_lane(overlap, lanes, [one.line.time_s.draws for one in priced])
    left = overlap.exposed(seconds)
    shares = _ratio(left.sum(axis=1), seconds.sum(axis=1))
    mean = _ratio(overlap.exposed(seconds.sum(axis=1, keepdims=True))[:, 0], seconds.sum(axis=1))
    by_draw = _ratio(overlap.exposed(drawn), drawn) * _ratio(shares, mean)[:, None]
    steps = _ratio(left, seconds)
    return [
        one if lane is None or shares[lane] >= 1 else _left(one, steps[lane], shares[lane], by_draw[lane])
        for lane, one in zip(lanes, priced, strict=True)
    ]


def _left(one: PricedOp, steps: Floats, share: float, draws: Floats) -> PricedOp:
    time = one.line.time_s
    left = replace(time, value=float(time.value * share), draws=time.draws * draws)
    line = replace(one.line, op=one.line.op + EXPOSED, time_s=left)
    return PricedOp(one.op, line, one.each * steps, one.clocked_s * share)


def _by_lane(overlap: Overlap, lanes: Sequence[int | None], each: Sequence[Floats]) -> Floats:
    found = np.zeros((overlap.lanes, each[0].size))
    for lane, seconds in zip(lanes, each, strict=True):
        if lane is not None:
            found[lane] += seconds
    return found


def _ratio(some: Floats, every: Floats) -> Floats:
    return np.asarray(np.divide(some, every, out=np.ones_like(every), where=every > 0))


class LaneTables:
    """Lanes of a step by its tokens, padding included: what a table takes off its steps. `by_tokens` gives the seconds
    of the operators that are named, in steps of every number of tokens with prompts and without."""

    def __init__(self, overlap: Overlap, ops: Sequence[Op], by_tokens: Callable[[frozenset[str], bool], list[float]]):
        self._overlap = overlap
        names: Mapping[int, set[str]] = {lane: set() for lane in range(overlap.lanes)}
        for op in ops:
            lane = lane_of(overlap, op)
            if lane is not None and part_of(op) not in ("decode", "prefill"):
                names[lane].add(op.name)
        self._dense = [
            np.array([by_tokens(frozenset(of), prompts) for of in names.values()]) for prompts in (False, True)
        ]

    def decodes_s(self, tokens: int, attention_s: Floats) -> Floats:
        """Hidden in steps of decodes alone, by what their attention takes."""
        lanes = np.repeat(self._dense[False][:, tokens, None], attention_s.size, axis=1)
        lanes[self._overlap.decode] += attention_s
        return hidden(self._overlap, lanes)

    def mixed_s(self, tokens: int, decodes_s: float, prompts_s: float) -> float:
        """Hidden in a step of decodes and prompts."""
        lanes = self._dense[True][:, tokens, None].copy()
        lanes[self._overlap.decode] += decodes_s
        lanes[self._overlap.prefill] += prompts_s
        return float(hidden(self._overlap, lanes)[0])
