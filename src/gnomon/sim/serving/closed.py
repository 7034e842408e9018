"""A closed loop on one replica: so many clients, each of which sends its next request when the last one has
finished."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.check import check
from gnomon.sim.serving.chunked import ChunkedReplica
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

    __slots__ = ("_released", "_sent", "arrivals")

    def __init__(self, requests: Requests, clients: int, cost: StepCost, limits: ServingLimits) -> None:
        """Each client has sent one request."""
        self.arrivals = [0.0] * len(requests)
        super().__init__(replace(requests, arrival_s=np.array(self.arrivals)), cost, limits, None, None)
        self._released = min(clients, len(requests))
        self._sent: dict[int, int] = {}
        """Who was sent last, by the request whose end it waited for."""
        self._visible[self._released :] = [inf] * (len(self._visible) - self._released)

    def _end_requests(self, ended: dict[int, int], end: float) -> None:
        super()._end_requests(ended, end)
        self._sent = {}
        for request in ended:
            if self._released < len(self.arrivals):
                self._sent[request] = self._released
                self._send(self._released, self._finish[request])
                self._released += 1

    def _delay(self, until: float) -> None:
        super()._delay(until)
        for request in self._fresh_last:
            if request in self._sent:
                self._send(self._sent[request], self._finish[request])

    def _send(self, request: int, arrival_s: float) -> None:
        self.arrivals[request] = arrival_s
        self._visible[request] = arrival_s + self._limits.ingress_s
