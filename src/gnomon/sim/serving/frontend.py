"""The front end of a replica: one process that every request passes before the scheduler, and every output after it.

It takes requests in one after the other, `request_s` each, and streams outputs between them: the share of the time
that outputs took since the scheduler last let a request in slows the next ones down. Outputs leave in order, those of
a large batch later, and wait for a part of its work on requests that had arrived before them.
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
        "_before_s", "_each_s", "_egress_s", "_ingress_s", "_limits", "_noted_s", "_output_egress_s", "_tokens",
        "_way_s", "door_s", "left_s",
    )  # fmt: skip

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self._each_s = limits.request_s
        self._tokens = 0
        """Outputs since the scheduler last let a request in, at `_noted_s`."""
        self._noted_s = -inf
        self.door_s = -inf
        """When it is through with the last request."""
        self.left_s = self._before_s = -inf
        """When the last scheduled outputs leave, and those before them did."""
        self._way_s = 0.0
        self._ingress_s, self._egress_s = limits.ingress_s, limits.egress_s
        self._output_egress_s = limits.egress_sequence_s

    def visible_s(self, arrival_s: float) -> float:
        """When the scheduler can see the next request."""
        door = self.door_s
        self.door_s = door = (arrival_s if arrival_s > door else door) + self._each_s
        return door + self._ingress_s

    def note(self, now_s: float) -> None:
        """The scheduler lets requests in: what outputs took of the time since it last did."""
        waited = now_s - self._noted_s
        if waited > 0:
            share = self._tokens * self._limits.output_s / waited
            self._each_s = self._limits.request_s / (1 - min(share, MOST_OUTPUT_SHARE))
            self._noted_s, self._tokens = now_s, 0

    def leave(self, end_s: float, outputs: int, steps: int) -> float:
        """When so many outputs of the step that ends then leave; `steps` of as many each end there."""
        self._tokens += outputs * steps
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

    def through(self, left_s: Floats, arrival_s: Floats, taken_in_s: Floats) -> Floats:
        """When outputs that leave the engine's side then have passed requests that had arrived before them;
        `taken_in_s` is when the front end was through with each."""
        if not self._limits.request_s:
            return left_s
        before = np.searchsorted(arrival_s, left_s, side="left") - 1
        return left_s + OUTPUT_WAIT * np.maximum(taken_in_s[np.maximum(before, 0)] - left_s, 0.0)
