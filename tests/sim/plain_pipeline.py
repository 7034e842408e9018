"""A pipeline under load without any cleverness: one scheduler over all requests, a queue of batches, every stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tests.sim.costs import Metered, Unmetered
from tests.sim.plain import Plain, PlainClock, Req, Step, interpolate

from gnomon.cost.governor import Governor
from gnomon.cost.step import Curve
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


class Stages(Unmetered):
    """Stages of made-up costs."""

    def __init__(self, *stages: Unmetered) -> None:
        self.stages = stages

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        return self.stages[0].decode_curve(sequences)


class Timed(Unmetered):
    """A cost that also says what it would draw."""

    def __init__(self, inner: Unmetered) -> None:
        self.decode_curve, self.launch = inner.decode_curve, inner.launch  # type: ignore[method-assign]
        self.inner = inner

    def host_s(self, sequences: int) -> float:
        return 4e-3 + 5e-4 * sequences

    def mixed_work(
        self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]
    ) -> tuple[float, float, float]:
        return self.inner.mixed(decodes, decode_context, chunks), 0.0, 0.0


class Powered(Timed):
    """A cost whose chips have a power limit."""

    def __init__(self, inner: Unmetered, governor: Governor) -> None:
        super().__init__(inner)
        metered = Metered(inner, governor)
        self.governor = governor
        self.decode_curve, self.mixed_work = metered.decode_curve, metered.mixed_work  # type: ignore[method-assign]


class PlainPipeline(Plain):
    def __init__(self, requests: Requests, cost: Stages, limits: ServingLimits) -> None:
        super().__init__(requests, cost, replace(limits, lookahead=0))
        self.stages, self.whole = cost.stages, limits
        self.free = [-np.inf] * limits.stages
        self.hosts = [-np.inf] * limits.stages
        self.most_in_flight, self.idle, self.unheard = 0, False, False
        self.clocks = [PlainClock(stage) if stage.governor else None for stage in cost.stages]
        self.traces: list[list[tuple[float, float]]] = []

    def run(self) -> PlainPipeline:
        while True:
            if not (self.running or self.waiting or self.queue):
                if not self.arriving:
                    return self
                self.now, self.idle = max(self.now, self.visible_s(self.arriving[0])), True
                self.unheard = True
            while self.arriving and self.visible_s(self.arriving[0]) <= self.now:
                self.waiting.append(self.arriving.popleft())
            ran = False
            if self.running or self.waiting:
                step = self.schedule_free()
                ran = bool(step.work)
                self.execute(step)
                self.queue.append(step)
                self.most_in_flight = max(self.most_in_flight, sum(bool(one.work) for one in self.queue))
                if len(self.queue) < self.whole.stages:
                    self.now += 0.0 if ran else self.limits.empty_call_s
                    continue
            step = self.queue.popleft()
            if step.work:
                self.take_outputs(step)
                self.unheard = False
            while self.arriving and self.visible_s(self.arriving[0]) <= self.now:
                self.waiting.append(self.arriving.popleft())
            if not ran and (self.running or self.waiting):
                self.now += self.limits.empty_call_s

    def schedule_free(self) -> Step:
        """A call that sees only requests that are not in flight, and the places that the others leave."""
        away = [req for step in self.queue for req, *_ in step.work if not req.waiting]
        order: list[Req] = self.running
        self.running = [req for req in order if req not in away]
        self.limits = replace(self.whole, lookahead=0, max_sequences=self.whole.max_sequences - len(away))
        step = self.schedule()
        self.running = [req for req in order if req in away or req in self.running] + [
            req for req in self.running if req not in order
        ]
        return step

    def execute(self, step: Step) -> None:
        if not step.work:
            if step.preempted:
                self.steps.append(step)
            return
        chunks = [(tokens, before) for req, tokens, before, _ in step.work if before < req.goal]
        contexts = [before for req, _, before, _ in step.work if before >= req.goal]
        at, trace = self.now, []
        for number, stage in enumerate(self.stages):
            if chunks:
                tokens = len(contexts) + sum(new for new, _ in chunks)
                seconds = stage.mixed_work(len(contexts), sum(contexts), chunks)[0]
                host = stage.launch(tokens, len(step.work), len(chunks))
                host *= self.limits.idle_launch if self.unheard else 1.0
            else:
                curve = stage.decode_curve(len(contexts))
                seconds = interpolate(curve.context, curve.seconds, sum(contexts) / len(contexts))
                host = stage.host_s(len(contexts))
            start = max(at, self.free[number])
            idle = self.limits.idle_start_s if number == 0 and self.idle else 0.0
            if clock := self.clocks[number]:
                seconds = self.at_its_clock(clock, start + idle, chunks, contexts)
            self.hosts[number] = max(self.now, self.hosts[number]) + host
            at = self.free[number] = max(start + idle + seconds, self.hosts[number])
            trace.append((start, at))
        step.end_s, self.idle = at, False
        self.traces.append(trace)
        self.steps.append(step)
        for req, *_ in step.work:
            if np.isnan(self.scheduled_s[req.index]):
                self.scheduled_s[req.index] = step.scheduled_s

    def at_its_clock(
        self, clock: PlainClock, start: float, chunks: list[tuple[int, int]], contexts: list[int]
    ) -> float:
        """Of a batch on a stage whose chips have a power limit; every batch is a stretch of work of its own."""
        governor = clock.cost.governor
        full, clocked, joules = clock.work(1.0, chunks, contexts)
        clock.begin(start, np.array([clocked, joules]) / full, full / governor.window_s)
        seconds, _, _ = clock.work(clock.slowdown, chunks, contexts)
        clock.joules += joules * governor.energy_share(clock.slowdown)
        clock.ended = start + seconds
        return seconds
