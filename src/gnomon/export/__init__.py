"""Plans as files that other programs start. One module a target, and for serving engines the script that their
operations write; `target` finds it by name."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from gnomon.engines import operated_engines
from gnomon.errors import unknown_name
from gnomon.export.base import TRAINING, Rendered, Target, TrainingTarget, serving_targets
from gnomon.export.serving_script import ServingScript


def targets() -> tuple[str, ...]:
    """All targets by name."""
    return serving_targets() + TRAINING


def target(name: str) -> Target:
    """The target of a name."""
    folded = name.strip().lower()
    if folded not in targets():
        raise unknown_name("export target", name, targets(), hint=f"Known: {', '.join(targets())}.")
    if folded in operated_engines():
        return ServingScript(folded)
    return cast(Target, import_module(f"gnomon.export.{folded}"))


def training_target(name: str) -> TrainingTarget:
    """One of the targets of training."""
    return cast(TrainingTarget, target(name))


__all__ = [
    "TRAINING",
    "Rendered",
    "Target",
    "TrainingTarget",
    "serving_targets",
    "target",
    "targets",
    "training_target",
]
