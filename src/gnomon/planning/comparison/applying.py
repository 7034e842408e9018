"""A plan's model, chips and work, planned again with techniques: the fastest step, or the highest rate within goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from zlib import crc32

import numpy as np

from gnomon.catalog import model_title
from gnomon.errors import DoesNotFitError, NoPlanError, NotApplicableError
from gnomon.planning.comparison.several import Best, Progress, applied_each
from gnomon.planning.serving.found import found_plan
from gnomon.planning.serving.task import PlanTask
from gnomon.planning.training.best import best_of
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.checks import check_chips
from gnomon.planning.training.report import report_step
from gnomon.planning.training.search import Search, label, search_of, step_of_row
from gnomon.search.rate import TOLERANCE
from gnomon.spec import Estimate, Plan, TrainingLoad
from gnomon.spec.applied import HelpfulTechniques
from gnomon.spec.estimate import DRAWS
from gnomon.techniques import SERVING, TRAINING, canonical, technique
from gnomon.techniques.applied import WHERE


@dataclass(frozen=True, kw_only=True)
class TrainedPlan:
    """A training plan, whose gains are of the time of a step."""

    plan: Plan
    bound: TrainingBinding
    work = TRAINING
    measure = "the time of a step"

    @property
    def chips(self) -> str:
        return self.bound.pool.words

    @property
    def title(self) -> str:
        load = self.plan.load
        assert isinstance(load, TrainingLoad)
        shape = f"{load.global_batch:,} sequences of {load.seq:,} tokens a step"
        return f"{model_title(self.bound.model.name)} on {self.chips}, {shape}: techniques that help"

    @property
    def own(self) -> tuple[str, ...]:
        return self.plan.strategy.techniques

    @cached_property
    def plain(self) -> Search:
        load, settings = self.plan.load, self.plan.engine.settings
        assert isinstance(load, TrainingLoad)
        check_chips(self.bound.pool.count)
        optimizer = str(settings.get("optimizer", "adamw"))
        return search_of(self.bound, self.bound.load(load), optimizer, self.plan.dtype)

    def best(self, more: Sequence[str]) -> Best:
        search = replace(self.plain, techniques=(*self.own, *more))
        if not search.fits.any():
            if search.applied and not search.allowed.any():
                why = search.applied.reject_reason(search.case)
                raise NotApplicableError(" + ".join(more), why, where=WHERE)
            raise DoesNotFitError("no plan with it fits in memory" if more else "no plan fits in memory")
        found_in, found = best_of([search], None)
        step = report_step(step_of_row(found_in, found.best)).step_time_s
        return Best(speed=step.map(np.reciprocal), label=label(found_in.grid, found.best, found_in.techniques))


@dataclass(frozen=True, kw_only=True)
class ServedPlan:
    """A serving plan, whose gains are of the highest rate of its chips within its goals."""

    task: PlanTask
    work = SERVING
    measure = "the highest rate within the goals"

    @property
    def chips(self) -> str:
        return self.task.chips

    @property
    def title(self) -> str:
        name = model_title(self.task.model.name)
        return f"{name} on {self.chips}, {self.task.stream}: techniques that help"

    @property
    def own(self) -> tuple[str, ...]:
        return self.task.techniques

    def best(self, more: Sequence[str]) -> Best:
        narrower = any("precision" in technique(canonical(text)).changes for text in more)
        asked = replace(
            self.task, techniques=(*self.own, *more), asked_objective="throughput",
            dtypes=None if narrower else self.task.dtypes,
        )  # fmt: skip
        found = found_plan(asked)
        if not found.rate_per_s:
            raise NoPlanError("no plan with it meets the goals at any rate", nearest={})
        drawn = np.random.default_rng(crc32(" ".join(asked.techniques).encode()))
        doubt = drawn.uniform(1 - TOLERANCE, 1 + TOLERANCE, DRAWS)
        rate = Estimate(found.rate_per_s, found.rate_per_s * doubt, source="simulated loads")
        return Best(speed=rate, label=found.label)


def applied_to(plan: Plan, planned: TrainedPlan | ServedPlan, progress: Progress | None) -> HelpfulTechniques:
    """The answer for a plan."""
    found = applied_each(planned, progress)
    return HelpfulTechniques(
        title=planned.title,
        work=planned.work,
        measure=planned.measure,
        without=found.without.label if found.without else "",
        techniques=found.each,
        pairs=found.pairs,
        best=found.best,
        inputs={"plan": plan.id, "model": plan.model, "on": planned.chips, "engine": plan.engine.label},
    )
