"""Schedulers of data-parallel ranks that step together: each decides for its own requests, all at the same moments.

A balancer gives requests to ranks. Requests go by their index in the replica's load; a rank numbers its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np

from gnomon.sim.serving.balancers import Arrived, Balancer, RankLoad, RoundRobin
from gnomon.sim.serving.base import CALL, ONCE, UNTIL_ARRIVAL, UNTIL_END, Decision, Policy, Queue
from gnomon.sim.serving.run import StepTotals
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

MOST_STEPS = 512
"""Decode steps that are made at once: those of a group are added up one by one, in an array."""
PolicyMaker = Callable[[Requests, ServingLimits], Policy]
Applied = tuple[list[int], dict[int, int], int]


class _Scheduled:
    """Where a rank writes when its requests first run."""

    __slots__ = ("ids", "times")

    def __init__(self, ids: list[int]) -> None:
        self.ids, self.times = ids, array("d")

    def __setitem__(self, request: int, now: float) -> None:
        self.times[self.ids[request]] = now


class Rank:
    """One scheduler, its queue and its requests."""

    __slots__ = ("ended", "ended_tokens", "ids", "in_step", "policy", "prompts", "queue")

    def __init__(self, policy: Policy) -> None:
        self.policy, self.queue = policy, Queue()
        self.ids: list[int] = []
        """Of its requests, those of the load."""
        self.queue.scheduled_s = _Scheduled(self.ids)  # type: ignore[assignment]
        self.queue.visible_s = array("d", [np.inf])
        self.prompts = self.ended = self.ended_tokens = 0
        """Prompt tokens that it was given; requests that have ended, and their prompt tokens."""
        self.in_step = False
        """Whether the last step had something of it."""

    def forked(self, requests: Requests | None) -> Rank:
        other = copy(self)
        other.ids, other.queue = self.ids[:], copy(self.queue)
        other.queue.visible_s = self.queue.visible_s[:]
        other.queue.scheduled_s = _Scheduled(other.ids)  # type: ignore[assignment]
        other.policy = self.policy.forked(None if requests is None else requests.take(np.array(self.ids, np.int64)))
        return other

    @property
    def running(self) -> int:
        """Requests with a place whose last token is not in flight."""
        return self.policy.count - len(self.policy.leaving)

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs, but for those whose last token is in flight."""
        return self.ended == len(self.ids)

    def globally(self, tokens: Mapping[int, int]) -> dict[int, int]:
        return {self.ids[request]: count for request, count in tokens.items()}


class _Resumed:
    """How many requests of all ranks were preempted."""

    __slots__ = ("_ranks",)

    def __init__(self, ranks: list[Rank]) -> None:
        self._ranks = ranks

    def __len__(self) -> int:
        return sum(len(rank.policy.resumed) for rank in self._ranks)


class _Free:
    """The mean of the ranks' caches."""

    __slots__ = ("_ranks",)

    def __init__(self, ranks: list[Rank]) -> None:
        self._ranks = ranks

    @property
    def free(self) -> float:
        return sum(rank.policy.cache.free for rank in self._ranks) / len(self._ranks)


class RankedPolicy:
    """See `gnomon.sim.serving.base.Policy`: all ranks as one. Its queue has the requests that no rank was given yet."""

    def __init__(self, requests: Requests, limits: ServingLimits, make: PolicyMaker) -> None:
        self._prompt: list[int] = requests.input_tokens.tolist()
        self._output: list[int] = requests.output_tokens.tolist()
        prefixes = requests.prefixes
        self._node: list[int] = [-1] * len(requests) if prefixes is None else prefixes.node.tolist()
        none = np.zeros(0, np.int64)
        tree = None if prefixes is None else prefixes.take(none)
        nothing = Requests(np.zeros(0), none, none, prefixes=tree)
        own = replace(limits, ranks=1)
        self.ranks = [Rank(make(nothing, own)) for _ in range(limits.ranks)]
        self._balancer: Balancer = (limits.balancer or RoundRobin)(limits.ranks)
        self._of: dict[int, tuple[int, int]] = {}
        """Rank and number there of each request that a rank has."""
        self.parts: list[Decision | None] = []
        """What each rank last decided."""
        self.applied: list[Applied | None] = []
        self._compositions: dict[tuple[int, ...], int] = {}
        self._steps = 0
        self._before: list[tuple[int, int, int]] = [(0, 0, 0)] * limits.ranks
        """Of each rank before the last call: running, ended and their prompt tokens."""
        self._now = -np.inf
        self._arrived: list[Arrived] = []
        """Requests from the head of the queue on that have arrived and that no rank was given yet."""
        self._held = False
        """Whether there are any."""
        self.in_flight = False
        self.loaded: set[int] = set()
        self.held_s = 0.0
        self._watch()

    def _watch(self) -> None:
        self.cache, self.resumed = _Free(self.ranks), _Resumed(self.ranks)

    def add(
        self, prompt: int, output: int, node: int = -1, loaded: bool = False, adapter: int = -1, priority: int = 0
    ) -> int:
        """Engines refuse adapters and priorities beside data-parallel ranks."""
        self._prompt.append(prompt)
        self._output.append(output)
        self._node.append(node)
        if loaded:
            self.loaded.add(len(self._prompt) - 1)
        return len(self._prompt) - 1

    def forked(self, requests: Requests | None) -> Self:
        other = copy(self)
        other.ranks = [rank.forked(requests) for rank in self.ranks]
        other._balancer, other._of = self._balancer.forked(), self._of.copy()
        other._before, other.loaded, other._arrived = self._before[:], self.loaded.copy(), self._arrived[:]
        other._watch()
        other._compositions, other.parts, other.applied = self._compositions.copy(), self.parts[:], self.applied[:]
        if requests is not None:
            other._prompt, other._output = requests.input_tokens.tolist(), requests.output_tokens.tolist()
            prefixes = requests.prefixes
            other._node = [-1] * len(requests) if prefixes is None else prefixes.node.tolist()
        return other

    def _give(self, queue: Queue, now: float) -> None:
        """Requests that have arrived go to their ranks."""
        visible, head, at_calls = queue.visible_s, queue.head, self._balancer.at_calls
        arrived = self._arrived
        while visible[head + len(arrived)] <= now:
            request = head + len(arrived)
            arrived.append(Arrived(visible[request], self._prompt[request]))
        if not self.count:  # what ended in the last step is known by now
            self._before = [(0, rank.ended, rank.ended_tokens) for rank in self.ranks]
        if arrived or self._balancer.due(now):
            loads = [self._load(rank, None if at_calls else self._before[i]) for i, rank in enumerate(self.ranks)]
            given = self._balancer.assign(arrived, loads, now)
            for place, number in enumerate(given):
                self._send(head + place, arrived[place].at_s, number)
            queue.head += len(given)
            del arrived[: len(given)]
        self._held = bool(arrived)
        if now > self._now:
            self._now = now
            self._before = [(rank.running, rank.ended, rank.ended_tokens) for rank in self.ranks]

    def _load(self, rank: Rank, before: tuple[int, int, int] | None) -> RankLoad:
        """Of a rank as it is, or as it was `before` the last call, with what it was given since."""
        if before is None:
            leaving = rank.policy.leaving
            tokens = rank.ended_tokens - sum(self._prompt[rank.ids[one]] for one in leaving)
            before = (rank.policy.count, rank.ended - len(leaving), tokens)
        running, ended, tokens = before
        return RankLoad(len(rank.ids) - ended - running, running, rank.prompts - tokens)

    def _send(self, request: int, at_s: float, number: int) -> None:
        rank = self.ranks[number]
        loaded = request in self.loaded
        prompt = self._prompt[request]
        local = rank.policy.add(prompt, self._output[request], self._node[request], loaded)
        rank.queue.visible_s.insert(local, at_s)
        rank.ids.append(request)
        rank.prompts += prompt
        self._of[request] = (number, local)

    def horizon(self, queue: Queue, now: float) -> int:
        self._give(queue, now)
        if not any(rank.policy.decoding for rank in self.ranks):
            return CALL
        often = UNTIL_END
        for rank in self.ranks:
            policy = rank.policy
            policy.in_flight = self.in_flight and rank.in_step
            own = UNTIL_ARRIVAL if rank.idle else policy.horizon(rank.queue, now)
            if not own:
                return own
            often = min(often, own)
        if self._balancer.at_calls:
            often = min(often, ONCE if self._held and self.leaving else often if self._held else UNTIL_ARRIVAL)
        self.parts = []
        return often

    def decide(self, queue: Queue, now: float) -> Decision:
        self._give(queue, now)
        self.parts = [self._part(rank, queue, now) for rank in self.ranks]
        decodes = context = tokens = 0
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        preempted: list[int] = []
        for rank, part in zip(self.ranks, self.parts, strict=True):
            if part is not None:
                decodes, context = decodes + part.decodes, context + part.context
                chunks += part.chunks
                prompts += [rank.ids[one] for one in part.prompts]
                preempted += [rank.ids[one] for one in part.preempted]
                tokens = max(tokens, part.tokens)
        return Decision(decodes, context, chunks, prompts, preempted, tokens)

    def _part(self, rank: Rank, queue: Queue, now: float) -> Decision | None:
        policy = rank.policy
        policy.in_flight = self.in_flight and rank.in_step
        if rank.idle:
            return None
        rank.queue.scheduled_s.times = queue.scheduled_s  # type: ignore[attr-defined]
        return policy.decide(rank.queue, now)

    def apply(self, decision: Decision) -> Applied:
        firsts: list[int] = []
        ended: dict[int, int] = {}
        outputs = 0
        self._steps += 1
        self.applied = [None] * len(self.ranks)
        for number, (rank, part) in enumerate(zip(self.ranks, self.parts, strict=True)):
            rank.in_step = part is not None and bool(part.decodes or part.chunks)
            if part is None or not rank.in_step:
                continue
            self.applied[number] = own = rank.policy.apply(part)
            firsts += [rank.ids[one] for one in own[0]]
            ended |= self._count_ended(rank, own[1])
            outputs += own[2]
        return firsts, ended, outputs

    def _count_ended(self, rank: Rank, ended: dict[int, int]) -> dict[int, int]:
        found = rank.globally(ended)
        rank.ended += len(found)
        rank.ended_tokens += sum(self._prompt[request] for request in found)
        return found

    def to_next_end(self) -> tuple[int, int]:
        ends, fits = zip(*(rank.policy.to_next_end() for rank in self.ranks if rank.policy.decoding), strict=True)
        most = min(ends)
        return most, min(most, *fits, MOST_STEPS)

    def advance(self, steps: int) -> None:
        self._steps += steps
        for rank in self.ranks:
            rank.in_step = bool(rank.policy.decoding)
            if rank.in_step:
                rank.policy.advance(steps)
            elif steps > 1 and rank.policy.leaving:
                rank.policy.release()

    def retire(self) -> dict[int, int]:
        ended: dict[int, int] = {}
        for rank in self.ranks:
            ended |= self._count_ended(rank, rank.policy.retire())
        return ended

    def release(self) -> None:
        for rank in self.ranks:
            if rank.policy.leaving:
                rank.policy.release()

    @property
    def leaving(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for rank in self.ranks:
            found |= rank.globally(rank.policy.leaving)
        return found

    @leaving.setter
    def leaving(self, tokens: dict[int, int]) -> None:
        own: list[dict[int, int]] = [{} for _ in self.ranks]
        for request, count in tokens.items():
            number, local = self._of[request]
            own[number][local] = count
        for rank, leaving in zip(self.ranks, own, strict=True):
            rank.policy.leaving = leaving

    @property
    def count(self) -> int:
        """Requests that ranks have, whether they have a place or wait for one."""
        return sum(len(rank.ids) - rank.ended + len(rank.policy.leaving) for rank in self.ranks)

    @property
    def decoding(self) -> dict[int, tuple[int, int]]:
        return {rank.ids[one]: state for rank in self.ranks for one, state in rank.policy.decoding.items()}

    @property
    def decodes(self) -> tuple[tuple[int, int], ...]:
        """Of each rank: how many decode, and their cached tokens together."""
        return tuple((len(rank.policy.decoding), rank.policy.context) for rank in self.ranks)

    @property
    def variant(self) -> int:
        """A number for how many decode on each rank."""
        key = tuple(len(rank.policy.decoding) for rank in self.ranks)
        return self._compositions.setdefault(key, len(self._compositions) + 1)

    @property
    def context(self) -> int:
        return sum(rank.policy.context for rank in self.ranks)

    @property
    def away(self) -> int:
        return sum(rank.policy.away for rank in self.ranks)

    @property
    def cached(self) -> array[int]:
        found = array("q", bytes(8 * len(self._prompt)))
        for rank in self.ranks:
            for request, tokens in zip(rank.ids, rank.policy.cached, strict=True):
                found[request] = tokens
        return found

    @property
    def preemptions(self) -> int:
        return sum(rank.policy.preemptions for rank in self.ranks)

    @property
    def peak_blocks(self) -> int:
        """Of the rank that ever held most."""
        return max(rank.policy.peak_blocks for rank in self.ranks)

    def ordered(self) -> Iterator[int]:
        return (rank.ids[one] for rank in self.ranks for one in rank.policy.ordered())

    def shares(self) -> Iterator[tuple[int, int]]:
        for number, rank in enumerate(self.ranks):
            part = self.parts[number] if self.parts else None
            if not self.parts or (part is not None and part.decodes):
                yield from ((rank.ids[one], tokens) for one, tokens in rank.policy.shares())

    def totals(self) -> StepTotals:
        """Of all ranks; steps are those of the group."""
        return replace(StepTotals.sum([rank.policy.totals() for rank in self.ranks]), steps=self._steps)
