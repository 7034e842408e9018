"""Rollouts of reinforcement learning: groups of samples decoded together, until all are done or enough are.

All samples of a replica decode from the start of a round, one token per step; a round that ends early carries its
unfinished groups over, whose tokens are prefilled again in the next. Nothing waits for room in the KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.step import StepCost
from gnomon.spec.workload import Floats

Ints = NDArray[np.int64]
CHUNK = 2048
"""Tokens of a prompt in one step; every engine's budget has room for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Samples by group (a row each): what they will have made in the end, and what they have."""

    lengths: Ints
    made: Ints
    prompt: int

    @classmethod
    def of(cls, lengths: Ints, prompt: int) -> Groups:
        return cls(lengths=lengths, made=np.zeros_like(lengths), prompt=prompt)

    @property
    def done(self) -> NDArray[np.bool_]:
        """Groups all of whose samples are."""
        return np.asarray((self.made >= self.lengths).all(axis=1))

    def __add__(self, other: Groups) -> Groups:
        lengths, made = (np.concatenate(pair) for pair in ((self.lengths, other.lengths), (self.made, other.made)))
        return Groups(lengths=lengths, made=made, prompt=self.prompt)

    def pick(self, rows: NDArray[np.bool_]) -> Groups:
        return Groups(lengths=self.lengths[rows], made=self.made[rows], prompt=self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One rollout phase."""

    seconds: float
    tokens: int
    """Made in it."""
    stale: int
    """Of the tokens of finished groups, those that earlier rounds made, with an earlier policy."""
    finished: Groups
    carried: Groups


def rollout(cost: StepCost, groups: Groups, *, replicas: int, enough: int) -> Round:
    """A round over replicas of one cost, which get groups in turn, until so many groups are done."""
    where = np.arange(len(groups.lengths)) % replicas
    left = groups.lengths - groups.made
    clocks = [_clock(cost, left[where == one], groups.made[where == one], groups.prompt) for one in range(replicas)]
    ends = np.zeros(len(where))
    for one, clock in enumerate(clocks):
        ends[where == one] = clock[left[where == one].max(axis=1)]
    stop = float(np.sort(ends)[min(enough, ends.size) - 1])
    steps = np.array([int(np.searchsorted(clock, stop, side="right")) - 1 for clock in clocks])
    made = np.minimum(left, np.maximum(steps[where], 0)[:, None])
    after = Groups(lengths=groups.lengths, made=groups.made + made, prompt=groups.prompt)
    done = ends <= stop
    return Round(
        seconds=stop,
        tokens=int(made.sum()),
        stale=int(groups.made[done].sum()),
        finished=after.pick(done),
        carried=after.pick(~done),
    )


def _clock(cost: StepCost, left: Ints, made: Ints, prompt: int) -> Floats:
    """When each step of a replica ends: that of its number, after the prefill of prompts and of what was made."""
    running = left > 0
    left, made = left[running], made[running]
    if not left.size:
        return np.zeros(1)
    begun = sum(_prefill_s(cost, int(prompt + each)) for each in made)
    order = np.argsort(left)
    left, made = left[order], made[order]
    seconds: list[Floats] = []
    at = 0
    for first, last in _spans(left):
        contexts = prompt + float(made[first:].mean()) + np.arange(at, last)
        curve = cost.decode_curve(left.size - first)
        seconds.append(np.interp(contexts, curve.context, curve.seconds))
        at = last
    return np.concatenate([[begun], begun + np.cumsum(np.concatenate(seconds))])


def _prefill_s(cost: StepCost, tokens: int) -> float:
    """One prompt, chunk by chunk."""
    return sum(cost.mixed(0, 0, [(min(CHUNK, tokens - at), at)]) for at in range(0, tokens, CHUNK))


def _spans(left: Ints) -> Sequence[tuple[int, int]]:
    """Samples that are done before a span of steps with as many samples, and the step at which it ends."""
    ends, firsts = np.unique(left, return_index=True)
    return [(int(first), int(end)) for first, end in zip(firsts, ends, strict=True)]
