"""1F1B (PipeDream-Flush, Narayanan et al. 2021): one chunk of the network per rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from gnomon.sim.training.base import Counts, Schedule, Task, in_order, micro_batches
from gnomon.sim.training.pipelines import Terms, longest
from gnomon.spec.workload import Floats

NEVER = -np.inf
"""The length of a path that does not exist."""


class OneFOneB(Schedule):
    """A backward as soon as the last rank can give one, as Megatron-LM and torch.distributed.pipelining run it."""

    name = "1f1b"
    place = 1
    usual = True

    def tasks(self, pp: int, vp: int, micros: int) -> list[list[Task]]:
        self.check(pp, vp, micros)
        forwards, backwards = micro_batches("F", micros), micro_batches("B", micros)
        return [in_order(forwards, backwards, min(micros, pp - 1 - rank)) for rank in range(pp)]

    def in_flight(self, pp: Counts, vp: Counts, micros: Counts, rank: Counts) -> Any:
        """One for each rank from here to the last."""
        return np.minimum(micros, np.subtract(pp, rank))

    def bound_s(self, t: Terms) -> Floats:
        return one_f_one_b_s(t)


def one_f_one_b_s(t: Terms) -> Floats:
    """A path begins by going down to the last rank, or with forwards on the first that wait for no backward.

    It ends by coming up from the last rank, or with the backwards of the first that no forward follows.
    """
    stays = np.minimum(t.m, t.p)
    full = t.m + t.p - 1
    way = (t.p - 1) * t.sends + t.last
    down_and_up = full * (t.f + t.b) + t.first + way + _between_s(t, t.m - 1)
    rest = way + np.maximum(_between_s(t, t.m - stays), (t.m - stays) * t.first)
    stay_and_up = full * t.f + (full - stays + 1) * t.b + stays * t.first_f + t.first_b
    down_and_stay = full * t.b + (full - stays + 1) * t.f + t.first_f + stays * t.first_b
    only_stay = t.m * (t.f + t.b + t.first)
    return np.maximum(np.maximum(down_and_up, only_stay), np.maximum(stay_and_up, down_and_stay) + rest)


def _between_s(t: Terms, pairs: Floats) -> Floats:
    """What a backward and a forward in turn, so often, add to their plain seconds; from the last rank to the last.

    A path may go up and down between ranks: h sends each way take h + 1 pairs. A turn at the last rank adds what
    that takes beyond the others, and so at the first. Longest is one that stays at the last, or keeps going to the
    first and back, or stays there too; or, where both ends have less to do, stays between them.
    """
    most = t.p - 1
    trips = np.floor(pairs / t.p)
    turns = pairs - trips * most
    fewest = np.ceil(pairs / t.p)
    whole = np.floor((pairs - fewest) / np.maximum(most, 1))
    ways = (
        pairs * t.last,
        trips * (most * t.sends + t.first) + turns * t.last,
        np.where(trips > 0, trips * (most * t.sends + t.last) + turns * t.first, NEVER),
        (pairs - fewest) * t.sends + whole * t.first + fewest * t.last,
        np.where(whole > 0, (pairs - fewest) * t.sends + fewest * t.first + whole * t.last, NEVER),
        np.where(trips > 0, most * t.sends + (pairs - most) * t.first + t.last, NEVER),
        np.where((t.p > 2) & (pairs > 0), t.last, NEVER),
    )
    return longest(*ways)


SCHEDULE = OneFOneB()
