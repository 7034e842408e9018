"""Starts a plan's replicas as real engine processes on this machine, or says why it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gnomon.api.fit import fit
from gnomon.execution.started import Launched, launched
from gnomon.spec import Plan
from gnomon.spec.questions.running import LaunchQuestion


def launch(
    plan: Plan | str | Path, *, dry_run: bool = False, force: bool = False, tell: Callable[[str], None] | None = None
) -> Launched:
    """Run every replica of a plan until it ends; signals are passed on to them.

    Nothing is started in a dry run, or where the engine or the GPUs are missing: `why_not` says so. A plan that would
    not run is refused, as in an export; `force` shows in a dry run what would be started anyway. `tell` is called with
    each command as it starts.
    """
    return answer(LaunchQuestion(plan=plan, dry_run=dry_run, force=force), tell)


def answer(question: LaunchQuestion, tell: Callable[[str], None] | None = None) -> Launched:
    """What a question starts, or would."""
    return launched(question, fit, tell or (lambda command: None))
