"""Chunked mixed batches, first come first served: the scheduler of vLLM V1 (checked against 0.24.0).

Each call of the scheduler gives every decode one token, then the prompt it has begun, then waiting
prompts, until the step's tokens, the sequences or the cache blocks run out. A request that cannot get
a block takes the last of the batch out; that one starts again from its prompt and what it had made,
before all others that wait.

With `lookahead` 1 two steps are in flight: a step is scheduled when the step before the running one
ends. A request whose last token is in flight is not scheduled again but keeps its place and its blocks
until that token is there. The loop launches a step before it looks at the outputs of the one in flight, so
a step with prompts that takes the host long to launch also delays the tokens before it.

Before the scheduler and after it stands the front end, see `frontend`.

Between two changes of the batch the steps are not walked but summed, see `curve` and `batch`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from copy import copy
from math import inf

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.base import Progress, Recorder, StepRecord
from gnomon.sim.serving.batch import NO_REQUEST, BatchState
from gnomon.sim.serving.clock import ClockState
from gnomon.sim.serving.curve import Curves, DecodeCurve
from gnomon.sim.serving.frontend import FrontEnd
from gnomon.sim.serving.run import ServingRun
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

EMPTY_SCHEDULE_S = 1e-3
"""vLLM's engine loop sleeps this long after a call that scheduled nothing while requests are open
(EngineCoreProc._process_engine_step)."""

PROGRESS_EVERY = 1000


def chunked(
    requests: Requests,
    cost: StepCost,
    limits: ServingLimits,
    *,
    record: Recorder | None = None,
    progress: Progress | None = None,
    curves: Curves | None = None,
) -> ServingRun:
    """Run the policy; see `gnomon.sim.serving.base.Policy`."""
    replica = ChunkedReplica(requests, cost, limits, record, progress, curves)
    replica.run()
    return replica.result(requests)


class ChunkedReplica:
    """The engine's loop: when the scheduler is called, what it decides, when the step ends.

    Requests may be known from the start, or `add`ed in order of arrival as a router sends them, with `run(until)` in
    between.
    """

    __slots__ = (
        "_batch", "_busy_s", "_clock", "_cold", "_cost", "_curves", "_end", "_finish", "_finished", "_first",
        "_fresh_first", "_fresh_last", "_front", "_head", "_in_flight", "_limits", "_now", "_peak_sequences",
        "_peak_tokens", "_progress", "_record", "_scheduled", "_visible", "ended",
    )  # fmt: skip

    def __init__(
        self,
        requests: Requests,
        cost: StepCost,
        limits: ServingLimits,
        record: Recorder | None,
        progress: Progress | None,
        curves: Curves | None = None,
    ) -> None:
        self._cost, self._limits = cost, limits
        self._record, self._progress = record, progress
        self._batch = BatchState(*_lengths(requests), limits)
        self._front = FrontEnd(limits)
        self._visible: list[float] = []
        """When the scheduler can see each request; at last, when it could see one that is not known yet."""
        self._take_in(requests)
        self._head = 0
        """The first request that has never run."""
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
        self._clock = ClockState(cost.governor, cost, self._curves) if cost.governor else None
        self._busy_s = 0.0
        self._finished = self._peak_sequences = self._peak_tokens = 0
        blank = bytes(8 * len(requests))
        self._first, self._finish, self._scheduled = array("d", blank), array("d", blank), array("d", blank)
        self.ended: list[int] | None = None
        """A list here gets each request whose last token is scheduled; its reader may empty it."""

    def add(self, arrival_s: float, prompt: int, output: int) -> int:
        """One more request, which arrives no earlier than the others; its index."""
        index = self._batch.add(prompt, output)
        self._visible.insert(index, self._front.visible_s(arrival_s, prompt, output))
        for times in (self._first, self._finish, self._scheduled):
            times.append(0.0)
        return index

    def _take_in(self, requests: Requests) -> None:
        """The front end's work on the requests that it has not seen."""
        visible, seen = self._visible, len(self._visible)
        columns = (requests.arrival_s, requests.input_tokens, requests.output_tokens)
        rest = zip(*(column[seen:].tolist() for column in columns), strict=True)
        visible += [self._front.visible_s(*request) for request in rest]
        visible.append(inf)

    def forked(self, requests: Requests | None = None) -> ChunkedReplica:
        """A copy as it stands now: to go on by itself with requests of which the first are those that it ran so far,
        or, without any, to be forked again."""
        other = copy(self)
        other._clock = copy(self._clock)
        other._batch = self._batch.forked(*(_lengths(requests) if requests else ([], [])))
        other._front = self._front.forked()
        other._visible = self._visible[: len(self._first)]
        if requests:
            other._take_in(requests)
        more = array("d", bytes(8 * (len(requests) - len(self._first)) if requests else 0))
        other._first, other._finish, other._scheduled = self._first + more, self._finish + more, self._scheduled + more
        return other

    def finish_s(self, request: int) -> float:
        """When a request that ended has its last token; the host may delay it until the next step is launched."""
        return self._finish[request]

    def run(self, until: float = inf) -> None:
        """Call the scheduler as long as no request that arrives from `until` on could matter to it."""
        batch, visible, lookahead = self._batch, self._visible, self._limits.lookahead
        resumed = batch.resumed
        visible[-1] = horizon = until + self._limits.request_s + self._limits.ingress_s
        while (now := self._now) < horizon:
            waiting = resumed[-1] if resumed else self._head if visible[self._head] <= now else NO_REQUEST
            if waiting == NO_REQUEST and not batch.count:
                if visible[self._head] == horizon:
                    break
                self._now = visible[self._head]
                continue
            if (
                batch.partial == NO_REQUEST
                and batch.decoding
                and (self._in_flight or (now == self._end and not lookahead))
                and batch.only_decodes(waiting)
            ):
                self._decode(waiting != NO_REQUEST)
            else:
                self._step()
        if self._progress:
            self._progress(self._finished)

    def result(self, requests: Requests) -> ServingRun:
        batch, totals = self._batch, self._batch.totals()
        visible_s = np.array(self._visible[:-1])
        first_s, finish_s = (
            self._front.through(np.array(times), requests, visible_s) for times in (self._first, self._finish)
        )
        return ServingRun(
            requests=requests,
            first_token_s=first_s,
            finish_s=finish_s,
            scheduled_s=np.array(self._scheduled),
            preemptions=batch.preemptions,
            steps=totals.steps,
            busy_s=self._busy_s,
            peak_kv_blocks=batch.peak_blocks,
            peak_sequences=self._peak_sequences,
            peak_step_tokens=self._peak_tokens,
            totals=totals,
            dynamic_j=self._clock.dynamic_j if self._clock else 0.0,
            clock_slowdown=self._clock.weighted_s / self._busy_s if self._clock and self._busy_s else 1.0,
        )

    def _curve(self, decodes: int) -> DecodeCurve:
        curve = self._curves.get(decodes)
        if curve is None:
            curve = self._curves[decodes] = DecodeCurve(self._cost.decode_curve(decodes), decodes)
        return curve

    def _decode(self, queued: bool) -> None:
        """Steps of the same decodes, until one of them ends, blocks run out or a new request can come in.

        Step i (from 0) is decided when step i - 1 ends, or step i - 2 with lookahead. Those who wait
        already cannot come in before somebody leaves, for blocks only become fewer.
        """
        batch, look, clock, start = self._batch, self._limits.lookahead, self._clock, self._end
        decodes, context = len(batch.decoding), batch.context
        curve = clock.curve(start, decodes, context) if clock is not None else self._curve(decodes)
        to_end, steps = batch.to_next_end()
        if self._record is not None or (queued and batch.leaving):
            steps = 1
        elif steps > 1 and not queued and (batch.leaving or batch.count < self._limits.max_sequences):
            wait = self._visible[self._head] - start
            steps = look + curve.steps_until(context, wait, steps - look)
        if clock is not None and clock.until < inf and steps > 1:
            steps = curve.steps_until(context, clock.until - start, steps)
        before_s, seconds = curve.span(context, steps)
        end = start + seconds
        if clock is not None:
            clock.decoded(curve, end, context, steps, seconds)
        self._busy_s += seconds
        if self._record is not None:
            self._note(start, end, [], [], [])
        batch.advance(steps)
        self._front.leave(end, decodes)
        ended: dict[int, int] = {}
        self._fresh_first, self._fresh_last = (), ()
        if steps == to_end:
            ended = batch.retire()
            self._fresh_last = list(ended)
            self._end_requests(ended)
        if look:
            self._now, self._cold = start + before_s, False
        else:
            batch.leaving, ended = ended, {}
            self._now = end
        if batch.leaving:
            batch.release()
        if ended:
            batch.leaving = ended
        self._end = end

    def _step(self) -> None:
        """One call of the scheduler, with prompts, or after a pause, or short of blocks."""
        batch, cost, clock = self._batch, self._cost, self._clock
        most, now, before = self._limits.max_step_tokens, self._now, self._end
        piece, out = batch.claim(most)
        decodes, context = len(batch.decoding), batch.context
        chunks: list[tuple[int, int]] = []
        prompts: list[int] = []
        if piece:
            chunks.append((piece, batch.partial_tokens))
            prompts.append(batch.partial)
            batch.partial_tokens += piece
        left = most - decodes - piece
        if not out:
            left = self._admit(left, chunks, prompts)
        if not (decodes or chunks):
            self._idle(out)
            return
        start = now if now > before else before
        launched = now
        if chunks:
            if clock is None:
                seconds = cost.mixed(decodes, context, chunks)
            else:
                seconds = clock.mixed(start, cost.mixed_work(decodes, context, chunks))
            tokens, sequences = most - left, decodes + len(chunks)
            launch = cost.launch(tokens, sequences, len(chunks))
            launched += launch * self._limits.idle_launch if self._cold or now > before else launch
            if tokens > self._peak_tokens:
                self._peak_tokens = tokens
            if sequences > self._peak_sequences:  # a step without prompts has no more than the one before it
                self._peak_sequences = sequences
        elif clock is None:
            seconds = self._curve(decodes).one(context)
        else:
            curve = clock.curve(start, decodes, context)
            seconds = curve.one(context)
            clock.decoded(curve, start + seconds, context, 1, seconds)
        end = start + seconds
        if now > before:
            end += self._limits.idle_start_s
        if launched > end:
            end = launched
        self._busy_s += seconds
        if self._record is not None:
            self._note(start, end, chunks, prompts, out)
        ended = batch.tick()
        if self._in_flight and launched > before:
            self._delay(launched)
        self._end_prompts(prompts, ended, end, decodes)
        self._retire(ended, end, launched)

    def _admit(self, budget: int, chunks: list[tuple[int, int]], prompts: list[int]) -> int:
        """Let waiting requests in, in order, while there are tokens, places and blocks for the whole prompt; the tokens
        that are left."""
        batch, places, visible, now = self._batch, self._limits.max_sequences, self._visible, self._now
        resumed = batch.resumed
        while budget > 0 and batch.count < places:
            if resumed:
                request = resumed[-1]
            elif visible[self._head] <= now:
                request = self._head
            else:
                break
            tokens = batch.enter(request, budget)
            if not tokens:
                break
            if resumed:
                resumed.pop()
            else:
                self._head = request + 1
                self._scheduled[request] = now
            budget -= tokens
            chunks.append((tokens, 0))
            prompts.append(request)
        return budget

    def _end_prompts(self, prompts: list[int], ended: dict[int, int], end: float, decodes: int) -> None:
        """Prompts that are through make their first token, and go on as decodes, or are `ended` as well."""
        batch = self._batch
        firsts: list[int] = []
        outputs = decodes
        for request in prompts:
            if request == batch.partial:
                if batch.partial_tokens < batch.goal(request):
                    continue
                batch.partial = NO_REQUEST
            outputs += 1
            is_first, blocks = batch.begin(request)
            if is_first:
                firsts.append(request)
            if blocks:
                ended[request] = blocks
        left = self._front.leave(end, outputs)
        for request in firsts:
            self._first[request] = left
        self._fresh_first, self._fresh_last = firsts, ()
        if ended:
            self._fresh_last = list(ended)
            self._end_requests(ended)

    def _delay(self, until: float) -> None:
        """The host was still launching when the step in flight ended: its tokens leave only now."""
        left = self._front.delay(until)
        for request in self._fresh_first:
            self._first[request] = left
        for request in self._fresh_last:
            self._finish[request] = left

    def _end_requests(self, ended: dict[int, int]) -> None:
        """Requests whose last token leaves with the outputs of the last scheduled step."""
        before, left = self._finished, self._front.left_s
        self._finished += len(ended)
        for request in ended:
            self._finish[request] = left
        if self.ended is not None:
            self.ended += ended
        if self._progress and self._finished // PROGRESS_EVERY > before // PROGRESS_EVERY:
            self._progress(self._finished)

    def _retire(self, ended: dict[int, int], end: float, launched: float) -> None:
        """Wait for the outputs the loop waits for after launching a step: the step before it with lookahead."""
        batch = self._batch
        if not self._limits.lookahead:
            batch.leaving = ended
            batch.release()
            self._now = end
        elif self._in_flight:
            if batch.leaving:
                batch.release()
            batch.leaving = ended
            self._now = launched if launched > self._end else self._end
            self._cold = False
        else:
            batch.leaving = ended
            self._in_flight = self._cold = True
            self._now = launched
        self._end = end

    def _idle(self, out: list[int]) -> None:
        """Nothing could be scheduled: the loop waits for the step in flight, then sleeps a moment."""
        assert self._in_flight, "a request alone in the batch always fits"
        if self._record is not None and out:
            self._note(self._now, self._now, [], [], out)
        self._batch.release()
        self._in_flight = False
        self._now = self._end + EMPTY_SCHEDULE_S

    def _note(
        self, start: float, end: float, chunks: list[tuple[int, int]], prompts: list[int], out: list[int]
    ) -> None:
        assert self._record is not None
        batch = self._batch
        tokens = [(request, 1) for request in batch.ordered()]
        tokens += [(request, new) for request, (new, _) in zip(prompts, chunks, strict=True)]
        self._record.add(
            StepRecord(
                scheduled_s=self._now,
                start_s=start,
                end_s=end,
                decodes=len(batch.decoding),
                decode_context=batch.context,
                chunks=tuple(chunks),
                tokens=tuple(tokens),
                preempted=tuple(out),
            )
        )


def _lengths(requests: Requests) -> tuple[list[int], list[int]]:
    return requests.input_tokens.tolist(), requests.output_tokens.tolist()
