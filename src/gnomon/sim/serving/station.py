"""One replica: the engine's loop around its scheduler. The loop owns time; the policy decides, the cache holds.

With `lookahead` 1 two steps are in flight: a step is scheduled when the step before the running one
ends. A request whose last token is in flight is not scheduled again but keeps its place and its blocks
until that token is there. The loop launches a step before it looks at the outputs of the one in flight, so
a step with prompts that takes the host long to launch also delays the tokens before it.

Before the scheduler and after it stands the front end, see `frontend`.

Between two changes of the batch the steps are not walked but summed, see `curve` and `batch`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from copy import copy
from math import inf
from typing import Any

import numpy as np

from gnomon.cost.governor import Governor
from gnomon.cost.step import StepCost, parts_of
from gnomon.sim.serving.base import ONCE, UNTIL_ARRIVAL, Decision, Policy, Progress, Queue, Recorder, StepRecord
from gnomon.sim.serving.clock import ClockState
from gnomon.sim.serving.curve import BY_VARIANT, Curves, DecodeCurve, decode_curve
from gnomon.sim.serving.frontend import OUTPUT_WAIT, FrontEnd
from gnomon.sim.serving.log import RunLog
from gnomon.sim.serving.run import ServingRun
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

PROGRESS_EVERY = 1000


class Station:
    """The engine's loop: when the scheduler is called, what it decides, when the step ends.

    Requests may be known from the start, or `add`ed in order of arrival as a router sends them, with `run(until)` in
    between.
    """

    __slots__ = (
        "_busy_s", "_clock", "_cold", "_cost", "_curves", "_end", "_finish", "_finished", "_first",
        "_fresh_first", "_fresh_last", "_front", "_in_flight", "_limits", "_log", "_now", "_peak_sequences",
        "_peak_tokens", "_policy", "_progress", "_queue", "_record", "_tokenized", "ended", "feeds_back",
    )  # fmt: skip

    def __init__(
        self,
        requests: Requests,
        cost: StepCost,
        limits: ServingLimits,
        policy: Policy,
        record: Recorder | None = None,
        progress: Progress | None = None,
        curves: Curves | None = None,
    ) -> None:
        """`policy` knows the requests, and has scheduled nothing yet."""
        self._cost, self._limits, self._policy = cost, limits, policy
        self._record, self._progress = record, progress
        self._front = FrontEnd(limits)
        self._queue = Queue()
        self._take_in(requests)
        self._now = -inf
        """When the scheduler is called next."""
        self._end = -inf
        """When the last scheduled step ends."""
        self._in_flight = False
        """With lookahead: a step is in flight whose outputs the next call will not know."""
        self._cold = False
        """The step in flight is the first since the engine was idle."""
        self._fresh_first: Iterable[int] = ()
        self._fresh_last: Iterable[int] = ()
        """Whose first, and whose last, token the last scheduled step makes."""
        self._curves: Curves = {} if curves is None else curves
        self._clock = self._clock_of(cost.governor) if cost.governor else None
        self._log: RunLog | None = None
        self._busy_s = 0.0
        self._finished = self._peak_sequences = self._peak_tokens = 0
        blank = bytes(8 * len(requests))
        self._first, self._finish = array("d", blank), array("d", blank)
        self._tokenized: list[float] = []
        """When the tokenizer is through with each of the requests that were added."""
        self.ended: list[int] | None = None
        """A list here gets each request once the time of its last token is sure; its reader may empty it."""
        self.feeds_back = False
        """Whether the end of a request may cause an arrival here: `run` then stops where an end is sure."""

    def _clock_of(self, governor: Governor) -> ClockState:
        return ClockState(governor, self._cost, self._curves)

    def watch(self, log: RunLog | None) -> None:
        """Keep what the steps do in a log, where there is one; before the first step."""
        self._log = log
        if log is not None:
            log.watch(self._policy, self._front, self._clock, self._limits)

    def add(self, arrival_s: float, prompt: int, output: int, *more: Any) -> int:
        """One more request, which arrives no earlier than the others; its index. For what more there is see
        `Policy.add`."""
        index = self._policy.add(prompt, output, *more)
        self._queue.visible_s.insert(index, self._front.visible_s(arrival_s, prompt, output))
        self._tokenized.append(self._front.tokenized_last_s(arrival_s))
        for times in (self._first, self._finish, self._queue.scheduled_s):
            times.append(0.0)
        return index

    def load_all(self) -> None:
        """All requests known so far come with their keys and values, but for those of their last token."""
        self._policy.loaded.update(range(len(self._first)))

    def _take_in(self, requests: Requests) -> None:
        """The front end's work on the requests that it has not seen."""
        visible = self._queue.visible_s
        seen = len(visible)
        visible.extend(self._front.all_visible_s(requests, seen))
        visible.append(inf)
        self._queue.scheduled_s.frombytes(bytes(8 * (len(requests) - seen)))

    def forked(self, requests: Requests | None = None) -> Station:
        """A copy as it stands now: to go on by itself with requests of which the first are those that it ran so far,
        or, without any, to be forked again."""
        other = copy(self)
        other._clock = copy(self._clock)
        other._policy = self._policy.forked(requests)
        other._front = self._front.forked()
        other._queue = copy(self._queue)
        count = len(self._first)
        other._queue.visible_s = self._queue.visible_s[:count]
        other._queue.scheduled_s = self._queue.scheduled_s[:]
        if requests:
            other._take_in(requests)
        more = array("d", bytes(8 * (len(requests) - count) if requests else 0))
        other._first, other._finish = self._first + more, self._finish + more
        return other

    def finish_s(self, request: int) -> float:
        """When a request that ended has its last token; the host may delay it until the next step is launched."""
        return self._finish[request]

    def run(self, until: float = inf) -> None:
        """Call the scheduler as long as no request that arrives from `until` on could matter to it."""
        policy, queue, lookahead, feeds_back = self._policy, self._queue, self._limits.lookahead, self.feeds_back
        resumed, visible, horizon_of = policy.resumed, queue.visible_s, policy.horizon
        visible[-1] = horizon = until + self._limits.request_s + self._limits.ingress_s
        while (now := self._now) < horizon:
            if feeds_back and self.ended:
                break
            if not (policy.count or resumed) and visible[queue.head] > now:
                if self._fresh_last:
                    self._settle()
                    continue
                if visible[queue.head] == horizon:
                    break
                # A step may be in flight for requests that have ended meanwhile: the loop waits for its outputs.
                self._now, self._in_flight = max(visible[queue.head], self._end), False
                continue
            if (self._in_flight or (now == self._end and not lookahead)) and (often := horizon_of(queue, now)):
                self._decode(ONCE if feeds_back and self._fresh_last else often)
            else:
                self._step()
        if self._progress:
            self._progress(self._finished)

    def result(self, requests: Requests) -> ServingRun:
        policy, totals = self._policy, self._policy.totals()
        visible_s = np.array(self._queue.visible_s[:-1])
        first_s, finish_s = (
            self._front.through(np.array(times), requests, visible_s) for times in (self._first, self._finish)
        )
        if self._log is not None:
            self._log.through = lambda left_s: self._front.through(left_s, requests, visible_s)
        return ServingRun(
            requests=requests,
            first_token_s=first_s,
            finish_s=finish_s,
            scheduled_s=np.array(self._queue.scheduled_s),
            cached_tokens=np.array(policy.cached, np.int64),
            preemptions=policy.preemptions,
            steps=totals.steps,
            busy_s=self._busy_s,
            peak_kv_blocks=policy.peak_blocks,
            peak_sequences=self._peak_sequences,
            peak_step_tokens=self._peak_tokens,
            totals=totals,
            dynamic_j=self._clock.dynamic_j if self._clock else 0.0,
            clock_slowdown=self._clock.weighted_s / self._busy_s if self._clock and self._busy_s else 1.0,
        )

    def _curve(self, decodes: int, variant: int) -> DecodeCurve:
        key = decodes + variant * BY_VARIANT if variant else decodes
        curve = self._curves.get(key)
        if curve is None:
            curve = self._curves[key] = DecodeCurve(decode_curve(self._cost, decodes, 1.0, variant), decodes)
        return curve

    def _decode(self, often: int) -> None:
        """Steps of the same decodes, as `often` as the policy repeats them, until one ends or blocks run out.

        Step i (from 0) is decided when step i - 1 ends, or step i - 2 with lookahead. Those who wait
        already cannot come in before somebody leaves, for blocks only become fewer.
        """
        policy, look, clock, start = self._policy, self._limits.lookahead, self._clock, self._end
        decodes, context = len(policy.decoding), policy.context
        if clock is None:
            curve = self._curve(decodes, policy.variant)
        else:
            curve = clock.curve(start, decodes, context, policy.variant)
        to_end, steps = policy.to_next_end()
        if often == ONCE or self._record is not None:
            steps = 1
        wait = inf if clock is None else clock.until - start
        if often == UNTIL_ARRIVAL and steps > 1:
            arrives = self._queue.visible_s[self._queue.head] - start
            steps, before_s, seconds = curve.span_until(context, arrives, steps, look)
            if wait < inf and steps > 1:
                steps, before_s, seconds = curve.span_until(context, wait, steps, 0)
        elif wait < inf and steps > 1:
            steps, before_s, seconds = curve.span_until(context, wait, steps, 0)
        else:
            before_s, seconds = curve.span(context, steps)
        end = start + seconds
        if clock is not None:
            clock.decoded(curve, end, context, steps, seconds)
        self._busy_s += seconds
        if self._record is not None:
            self._note(start, end, Decision(decodes, context, [], [], [], decodes))
        policy.advance(steps)
        left = self._front.leave(end, decodes)
        if self._log is not None:
            self._log.decoded(start, end, steps, seconds - before_s)
        if self.ended is not None:
            self.ended += self._fresh_last
        self._fresh_first = self._fresh_last = ()
        ended: dict[int, int] = {}
        if steps == to_end:
            ended = policy.retire()
            self._end_requests(ended, left)
        if look:
            self._now, self._cold = start + before_s, False
        else:
            policy.leaving, ended = ended, {}
            self._now = end
        if policy.leaving:
            policy.release()
        if ended:
            policy.leaving = ended
        self._end = end

    def _step(self) -> None:
        """One call of the scheduler, with prompts, or after a pause, or short of blocks."""
        policy, cost, clock = self._policy, self._cost, self._clock
        now, before = self._now, self._end
        policy.in_flight = self._in_flight
        decision = policy.decide(self._queue, now)
        decodes, context, chunks, _, _, tokens, variant = decision
        if not (decodes or chunks):
            self._idle(decision)
            return
        start = now if now > before else before
        launched = now
        if chunks:
            if variant:
                work = cost.varied_work(decodes, context, chunks, variant)
                seconds = work[0] if clock is None else clock.mixed(start, work)
            elif clock is None:
                seconds = cost.mixed(decodes, context, chunks)
            else:
                seconds = clock.mixed(start, cost.mixed_work(decodes, context, chunks))
            sequences = decodes + len(chunks)
            launch = cost.launch(tokens, sequences, len(chunks))
            if variant and parts_of(variant)[0]:
                if before > now and self._limits.adapters_wait:
                    launched = before
                launched += policy.held_s + cost.varied_launch(tokens, variant)
            launched += launch * self._limits.idle_launch if self._cold or now > before else launch
            if tokens > self._peak_tokens:
                self._peak_tokens = tokens
            if sequences > self._peak_sequences:  # a step without prompts has no more than the one before it
                self._peak_sequences = sequences
        elif clock is None:
            seconds = self._curve(decodes, policy.variant).one(context)
        else:
            curve = clock.curve(start, decodes, context, policy.variant)
            seconds = curve.one(context)
            clock.decoded(curve, start + seconds, context, 1, seconds)
        end = start + seconds
        if now > before:
            end += self._limits.idle_start_s
        if launched > end:
            end = launched
        self._busy_s += seconds
        if self._record is not None:
            self._note(start, end, decision)
        firsts, ended, outputs = policy.apply(decision)
        if self._in_flight and launched > before:
            self._delay(launched)
        if self.ended is not None:
            self.ended += self._fresh_last
        left = self._front.leave(end, outputs)
        if self._log is not None:
            self._log.stepped(start, end, decision, (firsts, ended, outputs))
        for request in firsts:
            self._first[request] = left
        self._fresh_first, self._fresh_last = firsts, ()
        if ended:
            self._end_requests(ended, left)
        self._retire(ended, end, launched)

    def _delay(self, until: float) -> None:
        """The host was still launching when the step in flight ended: its tokens leave only now."""
        left = self._front.delay(until)
        if self._log is not None:
            self._log.delayed(left)
        for request in self._fresh_first:
            self._first[request] = left
        for request in self._fresh_last:
            self._finish[request] = left

    def _settle(self) -> None:
        """Another call was made, or none is: the last tokens before it are not delayed any more."""
        if self.ended is not None:
            self.ended += self._fresh_last
        self._fresh_last = ()

    def client_s(self, request: int) -> float:
        """When the client of a request that ended has its last token, with what the front end does before it for
        requests that had arrived."""
        left, limits = self._finish[request], self._limits
        if not limits.request_s:
            return left
        before = max(bisect_left(self._tokenized, left) - 1, 0)
        return left + OUTPUT_WAIT * max(self._queue.visible_s[before] - limits.ingress_s - left, 0.0)

    @property
    def kv_share(self) -> float:
        """Of its cache blocks, those that are held."""
        return 1 - self._policy.cache.free / self._limits.kv_blocks

    def _end_requests(self, ended: dict[int, int], left: float) -> None:
        """Requests whose last token leaves then, with the outputs of the last scheduled step."""
        self._fresh_last, finish = list(ended), self._finish
        for request in ended:
            finish[request] = left
        before = self._finished
        self._finished += len(ended)
        if self._progress and self._finished // PROGRESS_EVERY > before // PROGRESS_EVERY:
            self._progress(self._finished)

    def _retire(self, ended: dict[int, int], end: float, launched: float) -> None:
        """Wait for the outputs the loop waits for after launching a step: the step before it with lookahead."""
        policy = self._policy
        if not self._limits.lookahead:
            policy.leaving = ended
            policy.release()
            self._now = end
        elif self._in_flight:
            if policy.leaving:
                policy.release()
            policy.leaving = ended
            self._now = launched if launched > self._end else self._end
            self._cold = False
        else:
            policy.leaving = ended
            self._in_flight = self._cold = True
            self._now = launched
        self._end = end

    def _idle(self, decision: Decision) -> None:
        """Nothing could be scheduled: the loop waits for the step in flight, then a moment."""
        if self._record is not None and decision.preempted:
            self._note(self._now, self._now, decision)
        if self._log is not None:
            self._log.preempted(decision.preempted)
        if self._fresh_last:
            self._settle()
        self._policy.release()
        self._in_flight = False
        self._now = (self._end if self._end > self._now else self._now) + self._limits.empty_call_s

    def _note(self, start: float, end: float, decision: Decision) -> None:
        assert self._record is not None
        tokens = list(self._policy.shares()) if decision.decodes else []
        tokens += [(request, new) for request, (new, _) in zip(decision.prompts, decision.chunks, strict=True)]
        self._record.add(
            StepRecord(
                scheduled_s=self._now,
                start_s=start,
                end_s=end,
                decodes=decision.decodes,
                decode_context=decision.context,
                chunks=tuple(decision.chunks),
                tokens=tuple(tokens),
                preempted=tuple(decision.preempted),
            )
        )
