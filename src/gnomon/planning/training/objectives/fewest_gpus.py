"""The fewest GPUs that train within the limits, and the fastest plan on so many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gnomon.planning.training.objectives.base import TrainingObjective
from gnomon.planning.training.runs import Limits, Runs
from gnomon.planning.training.search import Search
from gnomon.spec.questions.objectives import FEWEST
from gnomon.spec.workload import Floats


class FewestGpus(TrainingObjective):
    """GPUs that train; spare nodes stand beside them. Counts are tried from the smallest on. One of which no plan has a
    bound within the limits is passed over without timing any, and the first with a plan that keeps them is the least
    there is."""

    name = FEWEST
    unit = "GPUs"
    pruned = "cannot keep the limits on fewer GPUs, nor be faster on as many"

    def score(self, runs: Runs, limits: Limits) -> Floats:
        return runs.step_s * runs.within(limits)

    def value(self, runs: Runs, limits: Limits) -> float:
        return float(runs.ranks[0])

    def rank(self, runs: Runs, limits: Limits) -> tuple[float, ...]:
        return (self.value(runs, limits), *super().rank(runs, limits))

    def levels(self, searches: Sequence[Search], bounds: Sequence[Floats]) -> Iterator[list[NDArray[np.bool_]]]:
        able = [np.isfinite(one) for one in bounds]
        counts = [one.grid.ranks[rows] for one, rows in zip(searches, able, strict=True)]
        for count in np.unique(np.concatenate([*counts, []])).tolist():
            yield [rows & (one.grid.ranks == count) for one, rows in zip(searches, able, strict=True)]


OBJECTIVE = FewestGpus()
