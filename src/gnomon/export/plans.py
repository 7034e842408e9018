"""What a plan is exported as where nobody says: its target, and the weights it serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gnomon.engines import module_engine, operated_engines, training_targets
from gnomon.errors import GnomonError, InputError
from gnomon.spec import Plan


def usual(plan: Plan) -> str:
    """The target of a plan's own engine."""
    if not plan.trains:
        return plan.engine.name if plan.engine.name in operated_engines() else operated_engines()[0]
    own = {engine: target for target, engine in training_targets().items()}
    return own.get(plan.engine.name, own[module_engine()])


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
