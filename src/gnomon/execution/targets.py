"""What a training plan can be exported to, and the command that starts it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gnomon.engines import training_engine, training_targets
from gnomon.errors import GnomonError, InputError
from gnomon.export import TrainingScript
from gnomon.load.plan import planned_pool
from gnomon.planning.training.asked import step_of
from gnomon.planning.training.step import TrainingStep
from gnomon.spec.answers import TrainingReport
from gnomon.spec.training_job import TrainingJob

PROPOSED = 2
"""Targets that a report names at most: that of its own engine, and the first of the others."""


def own_target(engine: str) -> str:
    """What a plan is exported to for its own engine; empty where nothing writes its configuration."""
    return next((name for name, started in training_targets().items() if started == engine), "")


def with_targets(report: TrainingReport) -> TrainingReport:
    """The report of a step with what its plan can be exported to as it is and fits under, its own engine's first;
    nothing is proposed where no target starts its own engine."""
    step: TrainingStep = report.step
    if not step.fits or not own_target(step.engine.name):
        return report
    plan, job, found = report.plan, written(step.job), []
    own = own_target(step.engine.name)
    for name in sorted(training_targets(), key=lambda name: name != own)[:PROPOSED]:
        with suppress(GnomonError):
            target = TrainingScript(name)
            target.render(plan, job=job)
            target.check(plan, job=job)
            if _fits(step, training_targets()[name]):
                found.append(name)
    return replace(report, targets=tuple(found))


def written(job: TrainingJob) -> TrainingJob:
    """A job as whoever reads its plan finds it: on chips in nodes as plans name them."""
    pool = job.pool
    return replace(job, pool=planned_pool(pool.chip, pool.unusual_node_size, job.strategy.ranks))


def _fits(step: TrainingStep, engine: str) -> bool:
    """Whether the step fits under an engine in the version that is written for."""
    chosen = type(step.engine)() if engine == step.engine.name else training_engine(engine)
    if chosen.version == step.engine.version and engine == step.engine.name:
        return step.fits
    return step_of(step.job, chosen, step.profile, {}).fits


def command_of(report: TrainingReport, config: Mapping[str, Any]) -> str:
    """The command that starts a report's plan on one node; empty where its own engine cannot run it. `config` is the
    model's config.json."""
    step: TrainingStep = report.step
    job, target = replace(written(step.job), config=config), own_target(step.engine.name)
    try:
        return shlex.join(TrainingScript(target).words(report.plan, job)) if target else ""
    except InputError:
        return ""
