"""A plan as the files of another program."""

from __future__ import annotations

from pathlib import Path

from gnomon.api.results import Exported
from gnomon.errors import InputError
from gnomon.export import target
from gnomon.spec import Plan
from gnomon.store import resolve_plan


def export(plan: Plan | str | Path, to: str = "vllm") -> Exported:
    """Launch files for a plan, given itself, as a file, as a run's id or as `last`. Nothing is written."""
    chosen = target(to)
    found = plan if isinstance(plan, Plan) else resolve_plan(plan)
    try:
        rendered = chosen.render(found)
    except InputError as error:
        if not isinstance(plan, Plan) and str(plan) not in error.where:
            error.where = ", ".join(filter(None, [str(plan), error.where]))
        raise
    return Exported(
        files=dict(rendered.files),
        command=rendered.command,
        engine=rendered.engine,
        version=rendered.version,
        not_expressed=rendered.not_expressed,
    )
