"""Intervals of a plan's figures: a part of its load again, under draws of the step cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gnomon.planning.serving.evaluator import ServingEvaluator, ServingFigures
from gnomon.search import Score
from gnomon.spec import Estimate, Provenance
from gnomon.spec.workload import METRICS, Floats

DRAWS = 16
REQUESTS = 600
"""Requests of each drawn run; the relative spread of its figures is taken for that of the whole load."""
SOURCE = f"the load under {DRAWS} draws of the step cost"


@dataclass(frozen=True, slots=True)
class Spread:
    """What draws of the step cost make of a plan's figures, relative to the central ones."""

    times: Mapping[tuple[str, str], Floats]
    power: Floats

    def of(self, figures: ServingFigures) -> dict[str, dict[str, Estimate]]:
        """Times by metric and statistic, each with its interval; those that nobody has are left out."""
        found: dict[str, dict[str, Estimate]] = {}
        for metric in METRICS:
            values: Mapping[str, float] = getattr(figures, f"{metric}_s")
            known = {name: value for name, value in values.items() if not np.isnan(value)}
            found[f"{metric}_s"] = {name: estimate(value, self.times[metric, name]) for name, value in known.items()}
        return found


def estimate(value: float, factors: Floats) -> Estimate:
    return Estimate(value, value * factors, Provenance.FITTED, SOURCE)


def spread(evaluator: ServingEvaluator, score: Score) -> Spread:
    """Of one plan at its rate."""
    center, *drawn = evaluator.drawn(score.plan, score.rate_per_s, REQUESTS, DRAWS)
    return Spread(
        times={
            (metric, name): np.array([getattr(each, f"{metric}_s")[name] for each in drawn]) / value
            for metric in METRICS
            for name, value in getattr(center, f"{metric}_s").items()
        },
        power=np.array([each.power_w for each in drawn]) / center.power_w,
    )
