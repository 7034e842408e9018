"""The run that costs least."""

from __future__ import annotations

from gnomon.planning.training.objectives.base import TrainingObjective
from gnomon.planning.training.runs import Limits, Runs
from gnomon.spec.questions.objectives import CHEAPEST
from gnomon.spec.workload import Floats


class Cheapest(TrainingObjective):
    """GPUs that train and spare nodes, for as long as the run takes."""

    name = CHEAPEST
    unit = "USD"
    equal = "equal in cost"
    pruned = "cannot be cheaper within the limits"
    timed = "timed and more expensive"

    def behind(self, more: float) -> str:
        return f"{more:.2%} more expensive"

    def score(self, runs: Runs, limits: Limits) -> Floats:
        return runs.cost_usd * runs.within(limits)


OBJECTIVE = Cheapest()
