"""A closed loop on one replica: so many clients, each of which sends its next request when the last one has
finished."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.check import check
from gnomon.sim.serving.chunked import ChunkedReplica
from gnomon.sim.serving.frontend import OUTPUT_WAIT, FrontEnd
from gnomon.sim.serving.run import ServingRun
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests


def simulate_closed(requests: Requests, clients: int, cost: StepCost, limits: ServingLimits) -> ServingRun:
    """Serve the requests in their order, never more than `clients` at once; their own arrival times are ignored.

    The first ones arrive together, each other one at the moment a client has the last token of the one before it. The
    run's requests have the arrivals that came of it: `simulate` makes the same run of them.
    """
    check(requests, limits)
    loop = _Loop(requests, clients, cost, limits)
    loop.run()
    return loop.result(replace(requests, arrival_s=np.array(loop.arrivals)))


class _Loop(ChunkedReplica):
    """The engine's loop, whose completions are the next arrivals."""

    __slots__ = ("_outputs", "_prompts", "_released", "_sent", "_taken_in", "_tokenized", "arrivals")

    def __init__(self, requests: Requests, clients: int, cost: StepCost, limits: ServingLimits) -> None:
        """Each client has sent one request."""
        self.arrivals = [0.0] * len(requests)
        super().__init__(replace(requests, arrival_s=np.array(self.arrivals)), cost, limits, None, None)
        self._released = 0
        self._prompts, self._outputs = requests.input_tokens.tolist(), requests.output_tokens.tolist()
        self._visible[:] = [inf] * len(self._visible)
        self._tokenized = [0.0] * len(requests)
        self._front = FrontEnd(limits)
        self._taken_in = self._front.forked()
        """The front end before it took in those requests that were sent last."""
        self._sent = 0
        """The first of those."""
        self._send(min(clients, len(requests)), 0.0)

    def _end_requests(self, ended: dict[int, int]) -> None:
        super()._end_requests(ended)
        self._taken_in, self._sent = self._front.forked(), self._released
        self._send_next(ended)

    def _delay(self, until: float) -> None:
        super()._delay(until)
        if self._fresh_last:
            self._front.take_back(self._taken_in)
            self._released = self._sent
            self._send_next(self._fresh_last)

    def _send_next(self, ended: Iterable[int]) -> None:
        """One more request for each that has ended, when its client has the last token."""
        left, before = self._front.left_s, self._sent - 1
        if self._limits.request_s:
            while before and self._tokenized[before] >= left:
                before -= 1
            left += OUTPUT_WAIT * max(self._visible[before] - self._limits.ingress_s - left, 0.0)
        for _ in ended:
            if self._released < len(self.arrivals):
                self._send(1, left)

    def _send(self, count: int, arrival_s: float) -> None:
        for request in range(self._released, self._released + count):
            self.arrivals[request] = arrival_s
            lengths = self._prompts[request], self._outputs[request]
            self._visible[request] = self._front.visible_s(arrival_s, *lengths)
            self._tokenized[request] = self._front.tokenized_last_s(arrival_s)
        self._released += count
