"""The front end of a replica: one process that every request passes before the scheduler, and every output after it.

It takes requests in one after the other. What it will have to do for a request's outputs counts with the request, as
far as it would delay others: an event loop serves both in turn. Outputs leave in order, those of a large batch later,
and wait for a part of its work on requests that had arrived before them.
"""

from __future__ import annotations

from math import inf

import numpy as np

from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats

MOST_OUTPUT_SHARE = 0.5
"""Of the front end's time that outputs take while requests wait: an event loop serves both in turn, and tokens of a
sequence that wait are sent together (RequestOutputCollector merges them). `vllm serve` under 800 and 1,200 requests of
16 tokens per second spent 0.46 to 0.50 of its time on them (measurements/h200-2026-11-18/http-qwen3-0.6b.json.gz)."""
OUTPUT_WAIT = 0.5
"""Of the front end's work on requests that arrived before an output, what the output waits for. On bursts of 32 to 512
requests to `vllm serve` (the same file) the mean absolute log error of TTFT p50 is 0.26 with none of it, 0.18 with
half and 0.24 with all."""


class FrontEnd:
    """When requests get through to the scheduler, and outputs to the client."""

    __slots__ = (
        "_before_s", "_egress_s", "_ingress_s", "_most_s", "_output_egress_s", "_output_s", "_request_s", "_way_s",
        "door_s", "left_s",
    )  # fmt: skip

    def __init__(self, limits: ServingLimits) -> None:
        self._request_s, self._output_s = limits.request_s, limits.output_s
        self._most_s = limits.request_s / (1 - MOST_OUTPUT_SHARE)
        self._ingress_s, self._egress_s = limits.ingress_s, limits.egress_s
        self._output_egress_s = limits.egress_sequence_s
        self.door_s = -inf
        """When it is through with the last request."""
        self.left_s = self._before_s = -inf
        """When the last scheduled outputs leave, and those before them did."""
        self._way_s = 0.0

    def visible_s(self, arrival_s: float, outputs: int) -> float:
        """When the scheduler can see the next request, which asks for so many tokens."""
        each, door = self._request_s + self._output_s * outputs, self.door_s
        if each > self._most_s:
            each = self._most_s
        self.door_s = door = (arrival_s if arrival_s > door else door) + each
        return door + self._ingress_s

    def leave(self, end_s: float, outputs: int) -> float:
        """When so many outputs of the step that ends then leave."""
        self._before_s = before = self.left_s
        self._way_s = way = self._egress_s + self._output_egress_s * outputs
        left = end_s + way
        if left < before:
            left = before
        self.left_s = left
        return left

    def delay(self, until_s: float) -> float:
        """The last outputs left the engine only then."""
        self.left_s = left = max(self._before_s, until_s + self._way_s)
        return left

    def through(self, left_s: Floats, arrival_s: Floats, visible_s: Floats) -> Floats:
        """When outputs that leave the engine's side then have passed requests that had arrived before them, which the
        scheduler could see at `visible_s`."""
        if not self._request_s:
            return left_s
        before = np.searchsorted(arrival_s, left_s, side="left") - 1
        taken_in_s = visible_s[np.maximum(before, 0)] - self._ingress_s
        return left_s + OUTPUT_WAIT * np.maximum(taken_in_s - left_s, 0.0)
