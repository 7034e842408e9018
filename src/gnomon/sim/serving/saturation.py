"""The highest request rate that a replica sustains: its throughput with a queue that is never empty."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.check import check
from gnomon.sim.serving.replica import station_of
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

LEAST_REQUESTS, MOST_REQUESTS = 5_000, 40_000
GENERATIONS = 6
"""A run has so many times the requests that the batch holds at once, so that filling and emptying it count little."""
MIDDLE = (0.3, 0.8)
"""Shares of the requests between whose ends the throughput is taken."""


def saturation_rps(requests: Requests, cost: StepCost, limits: ServingLimits, *, loaded: bool = False) -> float:
    """Requests per second beyond which the queue of a load of such lengths grows without bound; of a decode replica,
    to which prompts come with their KV cache (`loaded`)."""
    tokens = float((requests.input_tokens + requests.output_tokens / 2).mean())
    held = limits.ranks * math.ceil(
        min(limits.max_sequences, limits.kv_blocks * limits.block_tokens / max(tokens, 1.0))
    )
    count = min(max(LEAST_REQUESTS, GENERATIONS * held), MOST_REQUESTS)
    random = np.random.Generator(np.random.PCG64(0))
    at = random.permutation(max(count, len(requests)))[:count] % len(requests)
    taken = replace(requests, follows=None, think_s=None).take(at)
    outputs = taken.output_tokens
    # Those that fill the empty batch are at random places of their outputs, as in an engine that has run for long.
    outputs[:held] = np.maximum(1, outputs[:held] * random.random(outputs[:held].size)).astype(np.int64)
    waiting = replace(taken, arrival_s=np.zeros(count), output_tokens=outputs)
    check(waiting, limits)
    replica = station_of(waiting, cost, limits)
    if loaded:
        replica.load_all()
    replica.run()
    # As they leave the scheduler: that all arrived together delays outputs in the front end, and the last ones least.
    ends = np.sort([replica.finish_s(request) for request in range(count)])
    first, last = (int(share * count) for share in MIDDLE)
    middle = float(ends[last] - ends[first])
    # Where one step ends them all there is no middle, and what the step takes is all there is.
    return (last - first) / middle if middle > 0 else count / float(ends[-1])
