"""The most tokens that a budget pays for, or that a deadline leaves time for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gnomon.planning.training.objectives.base import Site, TrainingObjective
from gnomon.planning.training.runs import Limits, Runs, most_steps, run_of
from gnomon.planning.training.search import Search, step_of_row
from gnomon.spec.questions.objectives import TOKENS
from gnomon.spec.workload import Floats


class MostTokens(TrainingObjective):
    """In whole steps. Spare nodes and waiting for repairs depend on how long a run is, so that with failures a plan's
    longest run is looked for among its runs; without any it follows from the step."""

    name = TOKENS
    unit = "tokens"
    sets_tokens = True
    equal = "equal in tokens"
    pruned = "cannot train on more tokens within the limits"
    timed = "timed and of fewer tokens"

    def behind(self, more: float) -> str:
        return f"{more / (1 + more):.2%} fewer tokens"

    def score(self, runs: Runs, limits: Limits) -> Floats:
        """Its inverse: a run of no step at all is none."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / (self._steps(runs, limits) * runs.step_tokens))

    def value(self, runs: Runs, limits: Limits) -> float:
        return float(self._steps(runs, limits)[0]) * runs.step_tokens

    def _steps(self, runs: Runs, limits: Limits) -> Floats:
        """Of a run that was looked for, its own."""
        return runs.most_steps(limits) if runs.tokens is None else np.full(runs.step_s.shape, runs.steps)

    def run(self, search: Search, row: int, site: Site, limits: Limits) -> Runs:
        if site.failures is None:
            return run_of(search, row, None, None)
        step = step_of_row(search, row)
        steps = most_steps(step, site.failures, limits)
        if not steps:
            return replace(run_of(search, row, None, None), step_s=np.array([np.inf]))
        return replace(run_of(search, row, None, None), tokens=steps * search.load.step_tokens)


OBJECTIVE = MostTokens()
