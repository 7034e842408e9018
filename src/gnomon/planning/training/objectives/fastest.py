"""The run that is over first."""

from __future__ import annotations

from gnomon.planning.training.objectives.base import TrainingObjective
from gnomon.planning.training.runs import Limits, Runs
from gnomon.spec.questions.objectives import FASTEST
from gnomon.spec.workload import Floats


class Fastest(TrainingObjective):
    """In elapsed time: with failures, a plan of fewer GPUs that fails less may be it."""

    name = FASTEST
    by_step = True

    def score(self, runs: Runs, limits: Limits) -> Floats:
        return runs.step_s * runs.within(limits)

    def value(self, runs: Runs, limits: Limits) -> float:
        """Of the full run, or of a step where no run is asked for."""
        return float(runs.wall_s[0])


OBJECTIVE = Fastest()
