"""A plan as the files of another program."""

from __future__ import annotations

from pathlib import Path

from gnomon.api.fit import fit
from gnomon.execution.startable import checked, located
from gnomon.export import target
from gnomon.export.plans import named_plan, usual, with_checkpoint
from gnomon.spec import Plan
from gnomon.spec.answers import Exported
from gnomon.spec.questions.plans import ExportQuestion
from gnomon.store import resolve_plan


def export(
    plan: Plan | str | Path, to: str | None = None, *, checkpoint: str | None = None, force: bool = False
) -> Exported:
    """Launch files for a plan, named by a file, a run id or `last`, or passed as an object. Nothing is written.

    The default target is that of the plan's engine. A plan that would not run is refused: one that does not fit,
    whose format the chip or the engine does not run, or whose weights are in no checkpoint. `force` writes its files
    anyway, with a warning inside. `checkpoint` names the weights to serve where those of the model are in another
    format than the plan's.
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
        ready, warnings = checked(found, chosen.NAME, question.force, fit)
        rendered = chosen.render(ready, warnings)
    return Exported(
        files=dict(rendered.files),
        command=rendered.command,
        engine=rendered.engine,
        version=rendered.version,
        not_expressed=rendered.not_expressed,
        warnings=warnings,
    )
