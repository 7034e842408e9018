"""What the HTTP server adds to the front end, from bursts and rates sent to `vllm serve`: fitted through the simulator
to first tokens, and to how long it took to serve more than it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.calibrate.least_squares import fit
from gnomon.calibrate.server_loads import SHORT, arriving, together
from gnomon.calibrate.server_rows import column
from gnomon.cost.table import TableStepCost
from gnomon.engines.vllm.overheads import HTTP, Overheads
from gnomon.sim.serving import simulate
from gnomon.spec import Requests, ServingLimits
from gnomon.spec.workload import Floats

FIGURES = {
    "request_us": (1150.0, 100.0, 5000.0),
    "output_us": (70.0, 1.0, 400.0),
    "ingress_us": (3000.0, 100.0, 20000.0),
    "egress_sequence_us": (50.0, 0.0, 400.0),
}
"""Start, least and most."""
SETTLED = 250.0
"""Requests per second up to which first tokens are compared; beyond, with a growing queue, only the time of all is."""
Load = Mapping[str, Any]


def fit_http(loads: Sequence[Load], known: Overheads, cost: TableStepCost, limits: ServingLimits) -> dict[str, float]:
    """The HTTP server's figures beside those of the engine called in process, which are no larger."""
    least = {name: max(low, known.figures[name]) for name, (_, low, _) in FIGURES.items()}
    ranges = {name: (max(start, least[name]), least[name], most) for name, (start, _, most) in FIGURES.items()}
    found = fit(lambda c: http_errors(loads, known, c, cost, limits), ranges, rounds=20)
    return {name: round(value, 1) for name, value in found.items()}


def http_errors(
    loads: Sequence[Load], known: Overheads, c: Mapping[str, float], cost: TableStepCost, limits: ServingLimits
) -> Floats:
    """log(simulated / measured): TTFT p50 and p90, or the time of all requests of an overload."""
    served, errors = replace(limits, **replace(known, http=c).latencies(front_end=HTTP)), []
    for load in loads:
        run = simulate(requests_of(load), cost, served)
        if load.get("rate_per_s", 0.0) > SETTLED:
            errors.append(np.log(run.makespan_s / load["wall_s"]))
        else:
            first = np.quantile(column(load, "first_us") * 1e-6, (0.5, 0.9))
            errors += np.log(np.quantile(run.ttft_s, (0.5, 0.9)) / first).tolist()
    return np.array(errors)


def requests_of(load: Load) -> Requests:
    """The requests of a burst or of a rate, as they were sent."""
    if load["name"] == "burst":
        tokens, output = (int(column(load, f"{name}_tokens")[0]) for name in ("input", "output"))
        return together(load["requests"], tokens, output)
    arrivals = column(load, "arrival_us") * 1e-6
    return arriving(np.sort(arrivals), *SHORT)
