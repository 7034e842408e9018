"""Equal replicas behind a router that sees their load: they are simulated together, arrival by arrival."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.sim.serving.check import check
from gnomon.sim.serving.curve import Curves
from gnomon.sim.serving.run import ServingRun
from gnomon.sim.serving.station import Station
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

Router = Callable[[int, Sequence[int]], int]
"""The replica of a request, from its number and how many unfinished requests each replica has."""


def least_requests(request: int, unfinished: Sequence[int]) -> int:
    """The replica with the fewest unfinished requests; among equals, round-robin."""
    first = request % len(unfinished)
    return min(range(len(unfinished)), key=lambda at: (unfinished[at], (at - first) % len(unfinished)))


def simulate_pool(
    requests: Requests,
    cost: StepCost,
    limits: ServingLimits,
    *,
    replicas: int,
    router: Router = least_requests,
    curves: Curves | None = None,
) -> list[ServingRun]:
    """The runs of all replicas that got a request. The router knows which requests have finished by then."""
    check(requests, limits)
    nothing = Requests(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), requests.name)
    shared: Curves = {} if curves is None else curves
    engines = [Station(nothing, cost, limits, None, None, shared) for _ in range(replicas)]
    sent: list[list[int]] = [[] for _ in engines]
    ends: list[list[tuple[float, int]]] = [[] for _ in engines]
    unfinished = [0] * replicas
    columns = (requests.arrival_s.tolist(), requests.input_tokens.tolist(), requests.output_tokens.tolist())
    for engine in engines:
        engine.ended = []
    for request, (arrival, prompt, output) in enumerate(zip(*columns, strict=True)):
        for at, engine in enumerate(engines):
            engine.run(arrival)
            unfinished[at] -= _through(engine, ends[at], arrival)
        chosen = router(request, unfinished)
        engines[chosen].add(arrival, prompt, output)
        unfinished[chosen] += 1
        sent[chosen].append(request)
    for engine in engines:
        engine.run()
    return [engine.result(_some(requests, each)) for engine, each in zip(engines, sent, strict=True) if each]


def _through(engine: Station, ends: list[tuple[float, int]], now: float) -> int:
    """How many more requests have got their last token by now; the others' times stay in the heap `ends`."""
    if engine.ended:
        for request in engine.ended:
            heappush(ends, (engine.finish_s(request), request))
        engine.ended = []
    count = 0
    while ends and ends[0][0] <= now:
        _, request = heappop(ends)
        end = engine.finish_s(request)
        if end <= now:
            count += 1
        else:  # held back since it was noted
            heappush(ends, (end, request))
    return count


def _some(requests: Requests, chosen: list[int]) -> Requests:
    at = np.array(chosen)
    return Requests(requests.arrival_s[at], requests.input_tokens[at], requests.output_tokens[at], requests.name)
