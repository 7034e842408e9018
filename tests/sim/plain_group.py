"""Data-parallel ranks that step together, without any cleverness: every call, every rank, every request.

Each rank is a plain scheduler with requests that a balancer gave it; all are called at the same moments, and a step is
as long as the busiest rank's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from tests.sim.costs import Unmetered
from tests.sim.plain import Plain, Step, interpolate

from gnomon.cost.ranked import GroupSize, RankStep
from gnomon.cost.step import Curve
from gnomon.sim.serving.balancers import Arrived, RankLoad, RoundRobin
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class Group:
    """Ranks on a made-up cost, to which the size of the whole group adds."""

    governor = None

    def __init__(self, inner: Unmetered, ranks: int) -> None:
        self.inner, self.ranks = inner, ranks
        self.launch = inner.launch

    def size_of(self, tokens: Sequence[int]) -> GroupSize:
        return GroupSize(max(tokens), sum(tokens) + self.ranks - len(tokens))

    def key_of(self, size: GroupSize) -> int:
        return size.most * 100_000 + size.total

    def more(self, size: GroupSize) -> float:
        return 2.0**-14 * size.most + 2.0**-15 * size.total

    def rank_curve(self, decodes: int, size: GroupSize, slowdown: float = 1.0) -> Curve:
        plain = self.inner.decode_curve(decodes)
        return Curve(plain.context, plain.seconds + self.more(size))

    def group_work(self, steps: Sequence[RankStep]) -> tuple[float, float, float]:
        size = self.size_of([step.tokens for step in steps])
        times = [self.inner.mixed(step.decodes, step.decode_context, step.chunks) for step in steps]
        return max(times) + self.more(size), 0.0, 0.0

    def idle_j(self, size: GroupSize) -> float:
        return 0.0


class PlainGroup:
    def __init__(self, requests: Requests, cost: Group, limits: ServingLimits) -> None:
        self.cost, self.limits = cost, limits
        self.ranks = [Plain(requests, cost.inner, limits) for _ in range(limits.ranks)]
        self.given: list[list[int]] = [[] for _ in self.ranks]
        self.arriving = deque(self.ranks[0].all)
        self.balancer = (limits.balancer or RoundRobin)(limits.ranks)
        self.now, self.device_end, self.left_s = 0.0, -np.inf, -np.inf
        self.queue: deque[list[Step]] = deque()
        self.warm = False
        self.busy_s, self.steps = 0.0, 0
        self.last_call = -np.inf
        self.before = [(0, 0, 0)] * limits.ranks

    def run(self) -> PlainGroup:
        depth = 1 + self.limits.lookahead
        while True:
            if not (self.has_requests() or self.queue):
                if not self.arriving:
                    return self
                self.now = max(self.now, self.ranks[0].visible_s(self.arriving[0]))
            self.give()
            ran = False
            if self.has_requests():
                steps = self.schedule()
                ran = any(step.work for step in steps)
                self.execute(steps)
                self.queue.append(steps)
                if len(self.queue) < depth and (ran or self.has_requests()):
                    continue
            self.take_outputs(self.queue.popleft())
            if not ran and self.has_requests():
                self.now += self.limits.empty_call_s

    def has_requests(self) -> bool:
        return any(rank.has_requests() for rank in self.ranks)

    def state(self, number: int, known: bool) -> tuple[int, int, int]:
        """Requests of a rank that run, that have ended, and their prompt tokens; those whose last token is in flight
        have ended, unless that is not `known` yet and they still have their place."""
        rank = self.ranks[number]
        given = [rank.all[i] for i in self.given[number]]
        ends = {req.index for req in given if req.made + (req.in_flight if known or req.waiting else 0) >= req.output}
        running = sum(req.index not in ends for req in rank.running)
        return running, len(ends), sum(rank.all[i].prompt for i in ends)

    def give(self) -> None:
        plain = self.ranks[0]
        come = []
        while len(come) < len(self.arriving) and plain.visible_s(self.arriving[len(come)]) <= self.now:
            come.append(self.arriving[len(come)])
        numbers = range(len(self.ranks))
        live = self.balancer.at_calls
        if not any(len(given) - self.state(i, False)[1] for i, given in enumerate(self.given)):
            self.before = [self.state(number, True) for number in numbers]
        states = [self.state(number, False) for number in numbers] if live else self.before
        loads = [
            RankLoad(len(given) - ended - running, running, sum(plain.all[i].prompt for i in given) - tokens)
            for given, (running, ended, tokens) in zip(self.given, states, strict=True)
        ]
        arrived = [Arrived(plain.visible_s(req), req.prompt) for req in come]
        for number in self.balancer.assign(arrived, loads, self.now):
            index = self.arriving.popleft().index
            self.given[number].append(index)
            self.ranks[number].waiting.append(self.ranks[number].all[index])
        if self.now > self.last_call:
            self.last_call = self.now
            self.before = [self.state(number, True) for number in numbers]

    def schedule(self) -> list[Step]:
        steps = []
        for rank in self.ranks:
            rank.now = self.now
            steps.append(rank.schedule() if rank.has_requests() else Step([], [], self.now))
        return steps

    def parts(self, step: Step) -> RankStep:
        chunks = [(tokens, before) for req, tokens, before, _ in step.work if before < req.goal]
        contexts = [before for req, _, before, _ in step.work if before >= req.goal]
        return RankStep(len(contexts), sum(contexts), chunks, len(contexts) + sum(new for new, _ in chunks))

    def execute(self, steps: list[Step]) -> None:
        start = max(self.now, self.device_end)
        busy = [self.parts(step) for step in steps if step.work]
        for step in steps:
            step.start_s = step.end_s = start
        if not busy:
            return
        launch = 0.0
        if any(part.chunks for part in busy):
            seconds = self.cost.group_work(busy)[0]
            launch = max(
                self.cost.launch(part.tokens, part.decodes + len(part.chunks), len(part.chunks)) for part in busy
            )
        else:
            size = self.cost.size_of([part.decodes for part in busy])
            curves = [(self.cost.rank_curve(part.decodes, size), part) for part in busy]
            seconds = max(
                interpolate(curve.context, curve.seconds, part.decode_context / part.decodes) for curve, part in curves
            )
        was_idle = self.now > self.device_end
        launch *= 1.0 if self.warm and not was_idle else self.limits.idle_launch
        idle = self.limits.idle_start_s if was_idle else 0.0
        self.device_end = max(start + idle + seconds, self.now + launch)
        self.busy_s += seconds
        self.steps += 1
        self.warm = not was_idle or not self.limits.lookahead
        for rank, step in zip(self.ranks, steps, strict=True):
            step.end_s = self.device_end
            for req, *_ in step.work:
                if np.isnan(rank.scheduled_s[req.index]):
                    rank.scheduled_s[req.index] = step.scheduled_s
        self.now += launch

    def take_outputs(self, steps: list[Step]) -> None:
        self.now = max(self.now, *(step.end_s for step in steps))
        outputs = sum(makes for step in steps for *_, makes in step.work)
        if any(step.work for step in steps):
            left = self.now + self.limits.egress_s + self.limits.egress_sequence_s * outputs
            self.left_s = max(self.left_s, left)
        for rank, step in zip(self.ranks, steps, strict=True):
            rank.now, rank.left_s = self.now, self.left_s
            rank.note_outputs(step)

    def of(self, name: str) -> np.ndarray:
        """Times of all requests, each from its rank."""
        found = np.zeros(len(self.ranks[0].all))
        for rank, given in zip(self.ranks, self.given, strict=True):
            found[given] = getattr(rank, name)[given]
        return found
