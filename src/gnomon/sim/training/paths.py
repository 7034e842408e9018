"""Lengths of paths through a pipeline whose chunks are equal but for the first and the last of the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Terms:
    """Sizes and seconds, an array each, with blocking sends made part of the tasks they follow."""

    p: Floats
    v: Floats
    m: Floats
    f: Floats
    b: Floats
    first_f: Floats
    """Seconds the first chunk takes beyond the others; below zero where it alone has nothing to send."""
    first_b: Floats
    last_f: Floats
    last_b: Floats
    send_f: Floats
    send_b: Floats

    @classmethod
    def of(
        cls,
        pp: Any,
        vp: Any,
        micros: Any,
        forward_s: Any,
        backward_s: Any,
        first_forward_s: Any,
        first_backward_s: Any,
        last_forward_s: Any,
        last_backward_s: Any,
        forward_send_s: Any,
        backward_send_s: Any,
        blocking: Any,
    ) -> Terms:
        held = np.where(blocking & (pp > 1), 1.0, 0.0)
        sent = np.where(blocking | (pp == 1), 0.0, 1.0)
        return cls(
            p=pp.astype(float),
            v=vp.astype(float),
            m=micros.astype(float),
            f=forward_s + held * forward_send_s,
            b=backward_s + held * backward_send_s,
            first_f=first_forward_s,
            first_b=first_backward_s - held * backward_send_s,
            last_f=last_forward_s - held * forward_send_s,
            last_b=last_backward_s,
            send_f=sent * forward_send_s,
            send_b=sent * backward_send_s,
        )

    @property
    def first(self) -> Floats:
        return self.first_f + self.first_b

    @property
    def last(self) -> Floats:
        return self.last_f + self.last_b

    @property
    def sends(self) -> Floats:
        return self.send_f + self.send_b

    def turned(self) -> Terms:
        """The step run from its end: backwards become forwards, and every path is one again."""
        return replace(
            self,
            f=self.b,
            b=self.f,
            first_f=self.first_b,
            first_b=self.first_f,
            last_f=self.last_b,
            last_b=self.last_f,
            send_f=self.send_b,
            send_b=self.send_f,
        )


def gpipe_s(t: Terms) -> Floats:
    """Exact: all forwards pass as through a row of machines, the slowest of which sets the pace, then all backwards."""
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
    never = -np.inf
    ways = (
        pairs * t.last,
        trips * (most * t.sends + t.first) + turns * t.last,
        np.where(trips > 0, trips * (most * t.sends + t.last) + turns * t.first, never),
        (pairs - fewest) * t.sends + whole * t.first + fewest * t.last,
        np.where(whole > 0, (pairs - fewest) * t.sends + fewest * t.first + whole * t.last, never),
        np.where(trips > 0, most * t.sends + (pairs - most) * t.first + t.last, never),
        np.where((t.p > 2) & (pairs > 0), t.last, never),
    )
    return np.maximum.reduce(ways)


def interleaved_s(t: Terms) -> Floats:
    plain = (t.m * t.v + t.p - 1) * (t.f + t.b) + (t.p * t.v - 1) * t.sends
    return plain + np.maximum(_even_s(t), np.maximum(_uneven_s(t), _uneven_s(t.turned())))


def _even_s(t: Terms) -> Floats:
    """Paths that are the same from both ends, beyond the plain work and one way down and up through all chunks."""
    p, m = t.p, t.m
    rounds = _first_round_s(t) + _first_round_s(t.turned())
    twice, thrice = m >= 2 * p, m >= 3 * p
    pair, never = t.f + t.b, -np.inf
    ways = (
        # The last rank from its first task to its last.
        t.first + rounds + m * t.last,
        # The first rank, but for a round at the last before and after.
        np.where(thrice, (m - 2 * p + 1) * t.first + 2 * p * t.last + t.sends + rounds - pair, never),
        # The first rank from its first task to its last.
        np.where(twice, (m - p + 1) * t.first + _own_round_s(t) + _own_round_s(t.turned()) - (p - 1) * pair, never),
        # A rank between them.
        np.where(p > 2, t.first + rounds - pair, never),
    )
    return np.maximum.reduce(ways)


def _uneven_s(t: Terms) -> Floats:
    """Paths that end otherwise than they begin: they give up forwards for work on the first rank."""
    p, m = t.p, t.m
    begin, end = _first_round_s(t), np.maximum(0, (p - 1) * t.first_b)
    near, far = m - 2 * p + 1, m - p + 1
    twice, thrice, never = m >= 2 * p, m >= 3 * p, -np.inf
    own = near * t.first_f + far * t.first_b + begin
    between = near * t.first + begin + end
    ways = (
        np.where(twice, own + t.send_f + _own_round_s(t.turned()) + p * t.last - (p - 1) * t.f - t.b, never),
        np.where(twice, own + end + np.maximum(t.first_f + t.last, p * t.last) - 2 * (p - 1) * t.f, never),
        np.where(thrice, between + np.maximum(t.first_f + (p + 1) * t.last, 2 * p * t.last) - p * t.f, never),
        np.where(p > 2, t.first + begin + _first_round_s(t.turned()) + t.last - 2 * t.f, never),
    )
    return np.maximum.reduce(ways)


def _first_round_s(t: Terms) -> Floats:
    """The first `p` forwards may all be on the path, at the price of one way round the ranks."""
    return np.maximum(0, (t.p - 1) * t.first_f - t.p * t.send_f)


def _own_round_s(t: Terms) -> Floats:
    return np.maximum(0, (t.p - 1) * t.first_f) - (t.p - 1) * t.send_f
