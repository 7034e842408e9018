"""Interleaved 1F1B (Narayanan et al. 2021, section 2.2): every rank alternates between several chunks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task, in_order
from gnomon.sim.training.orders import in_rounds
from gnomon.sim.training.pipelines import Terms, longest
from gnomon.spec.workload import Floats

NEVER = -np.inf
"""The length of a path that does not exist."""


class Interleaved(Schedule):
    """As Megatron-LM and torch.distributed.pipelining run it, the chunks rotating every `pp` micro-batches."""

    name = "interleaved"
    place = 2
    usual = True
    chunks = (2, None)

    def multiple(self, pp: Counts) -> Any:
        return pp

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        chunks = range(vp)
        forwards = in_rounds("F", micros, pp, chunks)
        backwards = in_rounds("B", micros, pp, chunks[::-1])
        return [in_order(forwards, backwards, _warm_ups(pp, vp, micros, rank)) for rank in range(pp)]

    def bound_s(self, t: Terms) -> Floats:
        plain = (t.m * t.v + t.p - 1) * (t.f + t.b) + (t.p * t.v - 1) * t.sends
        return plain + np.maximum(_even_s(t), np.maximum(_uneven_s(t), _uneven_s(t.turned())))

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """The warm-up and the forward after it."""
        pp, vp, rank = (np.asarray(size, np.int64) for size in (pp, vp, rank))
        return np.minimum((vp - 1) * pp + 2 * (pp - 1 - rank) + 1, vp * micros)


def _warm_ups(pp: int, vp: int, micros: int, rank: int) -> int:
    return min((vp - 1) * pp + 2 * (pp - 1 - rank), vp * micros)


def _even_s(t: Terms) -> Floats:
    """Paths that are the same from both ends, beyond the plain work and one way down and up through all chunks."""
    p, m = t.p, t.m
    rounds = _first_round_s(t) + _first_round_s(t.turned())
    twice = m >= 2 * p
    pair = t.f + t.b
    ways = (
        # The last rank from its first task to its last.
        t.first + np.maximum(rounds, _waits_s(t)) + m * t.last,
        # The first rank, but for a round at the last before and after.
        np.where(twice, (m - 2 * p + 1) * t.first + 2 * p * t.last + t.sends + rounds - pair, NEVER),
        # The first rank from its first task to its last.
        np.where(twice, (m - p + 1) * t.first + _own_round_s(t) + _own_round_s(t.turned()) - (p - 1) * pair, NEVER),
        # A rank between them.
        np.where(p > 2, t.first + rounds - pair, NEVER),
    )
    return longest(*ways)


def _uneven_s(t: Terms) -> Floats:
    """Paths that end otherwise than they begin: they give up forwards for work on the first rank."""
    p, m = t.p, t.m
    begin, end = _first_round_s(t), np.maximum(0, (p - 1) * t.first_b)
    near, far = m - 2 * p + 1, m - p + 1
    twice = m >= 2 * p
    own = near * t.first_f + far * t.first_b + begin
    between = near * t.first + begin + end
    ways = (
        # A round at the last rank, then the first to its end.
        np.where(twice, own + t.send_f + _own_round_s(t.turned()) + p * t.last - (p - 1) * t.f - t.b, NEVER),
        # One micro-batch or a round at the last rank, and more forwards given up before.
        np.where(twice, own + end + np.maximum(t.first_f + t.last, p * t.last) - 2 * (p - 1) * t.f, NEVER),
        # As the one before, and a round at the last rank after.
        np.where(twice, between + np.maximum(t.first_f + (p + 1) * t.last, 2 * p * t.last) - p * t.f, NEVER),
        # A rank between them.
        np.where(p > 2, t.first + begin + _first_round_s(t.turned()) + t.last - 2 * t.f, NEVER),
    )
    return longest(*ways)


def _first_round_s(t: Terms) -> Floats:
    """The first `p` forwards may all be on the path, at the price of one way round the ranks."""
    return np.maximum(0, (t.p - 1) * t.first_f - t.p * t.send_f)


def _own_round_s(t: Terms) -> Floats:
    """The first round of a path that has not been at the last rank before, which has no sends to gain."""
    return np.maximum(0, (t.p - 1) * t.first_f) - (t.p - 1) * t.send_f


def _waits_s(t: Terms) -> Floats:
    """Where a send takes longer than the task it overlaps with, every chunk but one of every later round waits."""
    return (t.m - t.p) * (t.v - 1) * np.maximum(t.send_b - t.f, t.send_f - t.b)


SCHEDULE = Interleaved()
