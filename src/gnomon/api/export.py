"""A plan as the files of another program."""

from __future__ import annotations

from pathlib import Path

from gnomon.api.results import Exported
from gnomon.export import target
from gnomon.spec import Plan
from gnomon.store import resolve_plan


def export(plan: Plan | str | Path, to: str = "vllm") -> Exported:
    """Launch files for a plan, given itself, as a file, as a run's id or as `last`. Nothing is written."""
    chosen = target(to)
    rendered = chosen.render(plan if isinstance(plan, Plan) else resolve_plan(plan))
    return Exported(
        files=dict(rendered.files),
        command=rendered.command,
        engine=rendered.engine,
        version=rendered.version,
        not_expressed=rendered.not_expressed,
    )
