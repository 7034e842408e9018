"""Error bands of a simulated load: the same requests under draws of the step cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gnomon.engines import Deployment, Engine
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec.workload import METRICS

DRAWN = 16
"""Draws pushed through the simulator; each is a whole run."""
PART = 1000
"""Requests of each drawn run: the first of the load. Their relative spread is taken for that of all of them."""

Band = tuple[float, float]


def bands(engine: Engine, deployment: Deployment, run: ServingRun) -> dict[str, dict[str, Band]]:
    """Low and high, 90%, of every statistic of a run, by metric."""
    part = run.requests.first(PART)
    center, *draws = (_figures(simulate(part, *drawn)) for drawn in engine.drawn(deployment, DRAWN, part.longest))
    whole = _figures(run)
    return {
        metric: {
            name: band_of(value, center[metric][name], [d[metric][name] for d in draws]) for name, value in by.items()
        }
        for metric, by in whole.items()
    }


def _figures(run: ServingRun) -> Mapping[str, Mapping[str, float]]:
    times = {f"{metric}_s": run.statistics(metric) for metric in METRICS}
    return times | {"output_tokens_per_s": {"mean": run.output_tokens_per_s}}


def band_of(value: float, center: float, draws: list[float]) -> Band:
    """The 90% band of a value whose run and its draws gave these figures."""
    low, high = np.quantile(np.array(draws) / center, [0.05, 0.95])
    return min(value, value * float(low)), max(value, value * float(high))
