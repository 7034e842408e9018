"""Lengths of paths through a pipeline whose chunks are equal but for the first and the last of the network.

The paths differ in where they stay while the micro-batches pass, and in how they get there and back. Which of them
are the longest in practice was found by following longest paths. A path that exists is a bound whatever the times;
that these exist is checked against timelines of all kinds of sizes and times.
"""

from __future__ import annotations

import numpy as np

from gnomon.sim.training.pipelines import Terms
from gnomon.spec.workload import Floats

NEVER = -np.inf
"""The length of a path that does not exist."""


def gpipe_s(t: Terms) -> Floats:
    """Exact: all forwards pass through the stages at the rate of the slowest one, then all backwards."""
    return _pass_s(t) + _pass_s(t.turned())


def _pass_s(t: Terms) -> Floats:
    ends = np.maximum(t.first_f, t.last_f)
    slowest = t.f + np.where(t.p > 2, np.maximum(ends, 0), np.where(t.p > 1, ends, t.first_f + t.last_f))
    way = t.p * t.f + t.first_f + t.last_f + (t.p - 1) * t.send_f
    return way + (t.m - 1) * np.maximum(slowest, t.send_f)


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
    return _longest(*ways)


def interleaved_s(t: Terms) -> Floats:
    plain = (t.m * t.v + t.p - 1) * (t.f + t.b) + (t.p * t.v - 1) * t.sends
    return plain + np.maximum(_even_s(t), np.maximum(_uneven_s(t), _uneven_s(t.turned())))


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
    return _longest(*ways)


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
    return _longest(*ways)


def _first_round_s(t: Terms) -> Floats:
    """The first `p` forwards may all be on the path, at the price of one way round the ranks."""
    return np.maximum(0, (t.p - 1) * t.first_f - t.p * t.send_f)


def _own_round_s(t: Terms) -> Floats:
    """The first round of a path that has not been at the last rank before, which has no sends to gain."""
    return np.maximum(0, (t.p - 1) * t.first_f) - (t.p - 1) * t.send_f


def _waits_s(t: Terms) -> Floats:
    """Where a send takes longer than the task it overlaps with, every chunk but one of every later round waits."""
    return (t.m - t.p) * (t.v - 1) * np.maximum(t.send_b - t.f, t.send_f - t.b)


def _longest(*ways: Floats) -> Floats:
    longest: Floats = np.maximum.reduce(ways)
    return longest
