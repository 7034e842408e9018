"""Error bands of a simulated load: the same requests under draws of the step cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.engines import Deployment, Engine
from gnomon.planning.steps.energy import energy_j
from gnomon.search.bounds import Demand, KnownSteps, most_requests_per_s
from gnomon.sim.serving import ServingRun, simulate
from gnomon.sim.serving.closed import simulate_closed
from gnomon.spec import Requests, ServingLimits
from gnomon.spec.workload import METRICS

DRAWN = 16
"""Draws pushed through the simulator; each is a whole run."""
PART = 1000
"""Requests of each drawn run: the first of the load. Their relative spread is taken for that of all of them."""

Band = tuple[float, float]
RunFigures = Mapping[str, Mapping[str, float]]


def bands(
    engine: Engine,
    deployment: Deployment,
    run: ServingRun,
    stream: Requests,
    *,
    sustained: float = 0.0,
    clients: int | None = None,
) -> dict[str, dict[str, Band]]:
    """Low and high, 90%, of every statistic of a run of a stream, by metric; `sustained` is its saturation rate, where
    it is known, and `clients` are those of a closed loop."""
    part, demand = stream.first_sessions(PART), Demand.of(stream)
    waits = clients is not None or stream.follows is not None

    def figures(cost: StepCost, limits: ServingLimits) -> RunFigures:
        most = most_requests_per_s(KnownSteps(cost, demand), limits)
        again = simulate_closed(part, clients, cost, limits) if waits else simulate(part, cost, limits)
        return _figures(deployment, again, most)

    center, *draws = (figures(*drawn) for drawn in engine.drawn(deployment, DRAWN, part.longest))
    whole = _figures(deployment, run, sustained)
    return {
        metric: {
            name: band_of(value, center[metric][name], [d[metric][name] for d in draws]) for name, value in by.items()
        }
        for metric, by in whole.items()
    }


def _figures(deployment: Deployment, run: ServingRun, sustained: float) -> RunFigures:
    """By the names of a `ServingReport`."""
    joules = energy_j(deployment, run)
    tokens = float(run.requests.output_tokens.sum())
    means = {
        "output_tokens_per_s": run.output_tokens_per_s,
        "total_tokens_per_s": (tokens + float(run.requests.input_tokens.sum())) / run.makespan_s,
        "makespan_s": run.makespan_s,
        "energy_j": joules,
        "power_w": joules / run.makespan_s,
        "saturation_rps": sustained,
    }
    hours = run.makespan_s / 3600 * deployment.strategy.ranks
    means |= {"cost_usd": hours * deployment.pool.chip.price_usd_h}
    means |= {"usd_per_mtok": means["cost_usd"] / tokens * 1e6}
    times = {f"{metric}_s": run.statistics(metric) for metric in METRICS}
    return times | {name: {"mean": value} for name, value in means.items()}


def band_of(value: float, center: float, draws: list[float]) -> Band:
    """The 90% band of a value whose run and its draws gave these figures."""
    if not center:  # nothing that scales, such as the price of a chip without one
        return value, value
    low, high = np.quantile(np.array(draws) / center, [0.05, 0.95])
    return min(value, value * float(low)), max(value, value * float(high))
