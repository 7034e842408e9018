"""A plan as the files of another program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gnomon.api.startable import checked, located
from gnomon.errors import GnomonError, InputError
from gnomon.export import SERVING, TRAINING, target
from gnomon.spec import Plan
from gnomon.spec.answers import Exported
from gnomon.spec.questions.plans import ExportQuestion
from gnomon.store import resolve_plan


def export(
    plan: Plan | str | Path, to: str | None = None, *, checkpoint: str | None = None, force: bool = False
) -> Exported:
    """Launch files for a plan, given itself, as a file, as a run's id or as `last`. Nothing is written.

    Without a target it is that of the plan's own engine. A plan that would not run is refused: one that does not fit,
    whose format the chip or the engine does not run, or whose weights are in no checkpoint. `force` gives its files
    all the same, with a warning inside. `checkpoint` names the weights to serve where the model's own are in another
    format than the plan.
    """
    return answer(ExportQuestion(plan=plan, to=to, checkpoint=checkpoint, force=force))


def answer(question: ExportQuestion) -> Exported:
    """The files of the plan that a question names."""
    plan = question.plan
    chosen = target(question.to) if question.to is not None else None
    found = plan if isinstance(plan, Plan) else resolve_plan(plan)
    chosen = chosen or target(usual(found))
    with named_plan(plan):
        found = located(with_checkpoint(found, question.checkpoint))
        ready, warnings = checked(found, chosen.NAME, question.force)
        rendered = chosen.render(ready, warnings)
    return Exported(
        files=dict(rendered.files),
        command=rendered.command,
        engine=rendered.engine,
        version=rendered.version,
        not_expressed=rendered.not_expressed,
        warnings=warnings,
    )


def usual(plan: Plan) -> str:
    """The target of a plan's own engine."""
    if not plan.trains:
        return SERVING[0]
    return plan.engine.name if plan.engine.name in TRAINING else TRAINING[-1]


def with_checkpoint(plan: Plan, checkpoint: str | None) -> Plan:
    """The plan with other weights to serve, where some are named."""
    if checkpoint is None:
        return plan
    if plan.trains:
        hint = "Leave it out."
        raise InputError("a plan for training serves no checkpoint", where="--checkpoint", hint=hint)
    if not checkpoint.strip() or not checkpoint.isprintable():
        raise InputError(f"'{checkpoint}' is not a name", where="--checkpoint")
    return replace(plan, checkpoint=checkpoint)


@contextmanager
def named_plan(plan: Plan | str | Path) -> Iterator[None]:
    """Errors in here say which plan they are about."""
    try:
        yield
    except GnomonError as error:
        if not isinstance(plan, Plan) and str(plan) not in error.where and not error.where.startswith("--"):
            error.where = ", ".join(filter(None, [str(plan), error.where]))
        raise
