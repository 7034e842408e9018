"""Sessions of several turns: each prompt holds the prompts and outputs before it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gnomon.spec.workload import Floats, Ints, Prefixes, Requests

MOST_TURNS = 10_000
MOST_THINK_S = 1e7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turns:
    """Turns of sessions, one session after the other."""

    count: Ints
    """Of each session: its turns."""
    own_tokens: Ints
    """Of each turn: what it adds to the prompt."""
    output_tokens: Ints
    prefix_tokens: int = 0
    """Of what all prompts begin with."""
    group: Ints | None = None
    """Of each session: which of the prefixes that is."""
    groups: int = 0

    def __len__(self) -> int:
        return int(self.own_tokens.size)

    @property
    def first(self) -> Ints:
        """Of each session: the place of its first turn."""
        return np.cumsum(self.count) - self.count

    def requests(self, think_s: float, name: str) -> Requests:
        """The turns as requests, in this order; arrivals are zero."""
        total = np.cumsum(self.own_tokens + self.output_tokens)
        first = self.first
        before = np.repeat(total[first] - (self.own_tokens + self.output_tokens)[first], self.count)
        end = total - before + self.prefix_tokens
        made = Requests(np.zeros(len(self)), end - self.output_tokens, self.output_tokens, name=name)
        if int(self.count.max()) == 1:
            return replace(made, prefixes=self._roots())
        follows = np.arange(len(self)) - 1
        follows[first] = -1
        think = np.full(len(self), think_s)
        think[first] = 0.0
        return replace(made, prefixes=self._tree(end), follows=follows, think_s=think)

    def _roots(self) -> Prefixes | None:
        if self.group is None:
            return None
        return Prefixes(
            np.repeat(self.group, self.count),
            np.full(self.groups, -1, np.int64),
            np.full(self.groups, self.prefix_tokens, np.int64),
        )

    def _tree(self, end: Ints) -> Prefixes:
        """A node for each turn but the last of a session, as the turns after it begin with it."""
        size, first = len(self), self.first
        last = np.zeros(size, bool)
        last[first + self.count - 1] = True
        own = self.groups + np.cumsum(~last) - 1
        above = np.concatenate([[-1], own[:-1]])
        above[first] = -1 if self.group is None else self.group
        return Prefixes(
            np.where(last, above, own),
            np.concatenate([np.full(self.groups, -1, np.int64), above[~last]]),
            np.concatenate([np.full(self.groups, self.prefix_tokens, np.int64), end[~last]]),
        )


def timed(requests: Requests, starts_s: Floats) -> Requests:
    """In order of arrival, where sessions start at these times.

    A later turn stands at the earliest time it can arrive: after all times to think before it, as if answers took none.
    """
    if requests.follows is None:
        return replace(requests, arrival_s=starts_s)
    assert requests.think_s is not None
    waited, jump = requests.think_s.copy(), requests.follows.copy()
    root = np.arange(len(requests))
    while (later := np.flatnonzero(jump >= 0)).size:  # distances to the first turn double
        to = jump[later]
        waited[later] += waited[to]
        root[later] = root[to]
        jump[later] = jump[to]
    number = np.cumsum(requests.follows < 0) - 1
    arrival = starts_s[number[root]] + waited
    order = np.argsort(arrival, kind="stable")
    return replace(requests.take(order), arrival_s=arrival[order])
