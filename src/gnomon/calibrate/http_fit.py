"""What the HTTP server adds to the front end, from bursts and rates sent to `vllm serve`: fitted through the simulator
to first tokens, and to how many requests it got through where more arrived than it can serve."""

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
    "ingress_us": (3000.0, 100.0, 20000.0),
}
"""Start, least and most."""
SETTLED = 250.0
"""Requests per second up to which first tokens are compared."""
OVERLOADED = 1.5
"""Times the rate that was served: what arrives then keeps the server busy from the first request to the last."""
Load = Mapping[str, Any]


def fit_http(loads: Sequence[Load], known: Overheads, cost: TableStepCost, limits: ServingLimits) -> dict[str, float]:
    """The HTTP server's figures beside those of the engine called in process, which are no larger.

    What a request and its outputs take together is what an overloaded server took for each; first tokens of bursts and
    of low rates say how much of it is the request's. An output waits for half of those that leave with it.
    """
    busy = [load for load in loads if load.get("rate_per_s", 0.0) > OVERLOADED * load["requests"] / load["wall_s"]]
    both = float(np.median([load["wall_s"] / load["requests"] for load in busy])) * 1e6
    outputs = float(np.median([column(load, "output_tokens")[0] for load in busy]))
    settled = [load for load in loads if load.get("rate_per_s", 0.0) <= SETTLED]
    least = {name: max(low, known.figures[name]) for name, (_, low, _) in FIGURES.items()}
    ranges = {name: (max(start, least[name]), least[name], most) for name, (start, _, most) in FIGURES.items()}

    def whole(c: Mapping[str, float]) -> dict[str, float]:
        output = max((both - c["request_us"]) / outputs, known.figures["output_us"])
        return {**c, "output_us": output, "egress_sequence_us": known.figures["egress_sequence_us"] + output / 2}

    found = whole(fit(lambda c: http_errors(settled, known, whole(c), cost, limits), ranges, rounds=20))
    return {name: round(value, 1) for name, value in found.items()}


def http_errors(
    loads: Sequence[Load], known: Overheads, c: Mapping[str, float], cost: TableStepCost, limits: ServingLimits
) -> Floats:
    """log(simulated / measured) of TTFT p50 and p90."""
    served = replace(limits, **replace(known, http=c).latencies(front_end=HTTP))
    errors: list[float] = []
    for load in loads:
        first = np.quantile(column(load, "first_us") * 1e-6, (0.5, 0.9))
        ours = np.quantile(simulate(requests_of(load), cost, served).ttft_s, (0.5, 0.9))
        errors += np.log(ours / first).tolist()
    return np.array(errors)


def requests_of(load: Load) -> Requests:
    """The requests of a burst or of a rate, as they were sent."""
    if load["name"] == "burst":
        tokens, output = (int(column(load, f"{name}_tokens")[0]) for name in ("input", "output"))
        return together(load["requests"], tokens, output)
    arrivals = column(load, "arrival_us") * 1e-6
    return arriving(np.sort(arrivals), *SHORT)
