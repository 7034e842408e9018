"""The front end of a replica: one process that every request passes before the scheduler, and every output after it.

A tokenizer turns prompts of text into tokens first, one after the other, in a thread of its own: outputs do not wait
for it. The front end takes requests in one after the other. Those of a burst come before all outputs; what it then has
to do for the outputs of one counts with a request that comes later, as far as it would delay it: an event loop serves
both in turn. Outputs leave in order, those of a large batch later, and wait for a part of its work on requests that had
arrived before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from math import inf

import numpy as np

from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Floats, Requests

MOST_OUTPUT_SHARE = 0.5
"""Of the front end's time, the most that outputs take while requests wait, as an assumption: an event loop serves both
in turn, and tokens of a sequence that wait are sent together (RequestOutputCollector merges them). The largest that was
measured is 0.36, of `vllm serve` under 800 and 1,200 requests of 16 tokens per second
(measurements/h200-2026-11-18/http-qwen3-0.6b.json.gz)."""
BURST = 512
"""Requests that are taken in before the outputs of the first of them count: 512 at once that ask for 16 tokens had
their first ones after 0.70 s (p90), those that ask for one after 0.63 s, and their last ones 0.5 s later (the same
file). A larger burst was not measured."""
OUTPUT_WAIT = 0.5
"""Of the front end's work on requests that arrived before an output, what the output waits for. On bursts of 32 to 512
requests to `vllm serve` (the same file) the mean absolute log error of TTFT p50 is 0.31 with none of it, 0.15 with
half and 0.17 with all, each with the other figures fitted to it."""


AT_ONCE = 1 << 14
"""Requests of a load whose numbers are objects at one time."""


class FrontEnd:
    """When requests get through to the scheduler, and outputs to the client."""

    __slots__ = (
        "_before_s",
        "_egress_s",
        "_image_tokens",
        "_ingress_s",
        "_most_s",
        "_output_egress_s",
        "_output_s",
        "_owed_s",
        "_pictured",
        "_request_s",
        "_tokenize_s",
        "_tokenized_s",
        "_way_s",
        "door_s",
        "left_s",
    )  # fmt: skip

    def __init__(self, limits: ServingLimits) -> None:
        self._request_s, self._output_s = limits.request_s, limits.output_s
        self._most_s = limits.request_s / (1 - MOST_OUTPUT_SHARE)
        self._ingress_s, self._egress_s = limits.ingress_s, limits.egress_s
        self._output_egress_s = limits.egress_sequence_s
        self._image_tokens = limits.images.tokens if limits.images else 0
        self._pictured = limits.images.count * self._image_tokens if limits.images else 0
        """Tokens of every prompt that are images, which no tokenizer makes."""
        self._tokenize_s, self._tokenized_s = limits.tokenize_s, -inf
        """Of a token, and when the tokenizer is through with the last prompt."""
        self._owed_s: deque[float] = deque()
        """Its work on the outputs of the last requests."""
        self.door_s = -inf
        """When it is through with the last request."""
        self.left_s = self._before_s = -inf
        """When the last scheduled outputs leave, and those before them did."""
        self._way_s = 0.0

    def visible_s(self, arrival_s: float, prompt: int, outputs: int) -> float:
        """When the scheduler can see the next request, which brings and asks for so many tokens."""
        if self._tokenize_s:
            if self._tokenized_s > arrival_s:
                arrival_s = self._tokenized_s
            self._tokenized_s = arrival_s = arrival_s + self._tokenize_s * (prompt - self._pictured)
        owed, each, door = self._owed_s, self._request_s, self.door_s
        owed.append(self._output_s * outputs)
        if len(owed) > BURST:
            each += owed.popleft()
            if each > self._most_s:
                each = self._most_s
        self.door_s = door = (arrival_s if arrival_s > door else door) + each
        return door + self._ingress_s

    def all_visible_s(self, requests: Requests, first: int) -> Iterator[float]:
        """The same of all requests from a place on, some thousands at a time."""
        prompts = requests.input_tokens
        if requests.images is not None:  # what is not text is taken off every prompt alike
            prompts = prompts + self._pictured - requests.images * self._image_tokens
        columns = (requests.arrival_s, prompts, requests.output_tokens)
        for at in range(first, len(requests), AT_ONCE):
            yield from self._visible_s(*(column[at : at + AT_ONCE].tolist() for column in columns))

    def _visible_s(self, arrivals_s: list[float], prompts: list[int], outputs: list[int]) -> list[float]:
        if self._tokenize_s:
            return [self.visible_s(*request) for request in zip(arrivals_s, prompts, outputs, strict=True)]
        owed, output_s, most_s, ingress_s = self._owed_s, self._output_s, self._most_s, self._ingress_s
        door, found = self.door_s, []
        for arrival_s, tokens in zip(arrivals_s, outputs, strict=True):
            each = self._request_s
            owed.append(output_s * tokens)
            if len(owed) > BURST:
                each += owed.popleft()
                if each > most_s:
                    each = most_s
            door = (arrival_s if arrival_s > door else door) + each
            found.append(door + ingress_s)
        self.door_s = door
        return found

    def tokenized_last_s(self, arrival_s: float) -> float:
        """When the tokenizer was through with the last request, which arrived then."""
        return self._tokenized_s if self._tokenize_s else arrival_s

    def forked(self) -> FrontEnd:
        """A copy as it stands now, to go on by itself."""
        other = copy(self)
        other._owed_s = self._owed_s.copy()
        return other

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

    def tokenized_s(self, requests: Requests) -> Floats:
        """When the tokenizer is through with each request."""
        if not self._tokenize_s:
            return requests.arrival_s
        work_s = np.cumsum(self._tokenize_s * requests.input_tokens)
        begun_s = requests.arrival_s - work_s + self._tokenize_s * requests.input_tokens
        return np.asarray(work_s + np.maximum.accumulate(begun_s))

    def through(self, left_s: Floats, requests: Requests, visible_s: Floats) -> Floats:
        """When outputs that leave the engine's side then have passed requests that had reached the front end before
        them, which the scheduler could see at `visible_s`."""
        if not self._request_s:
            return left_s
        before = np.searchsorted(self.tokenized_s(requests), left_s, side="left") - 1
        taken_in_s = visible_s[np.maximum(before, 0)] - self._ingress_s
        return left_s + OUTPUT_WAIT * np.maximum(taken_in_s - left_s, 0.0)
