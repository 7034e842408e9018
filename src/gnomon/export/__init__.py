"""Plans as files that other programs start. One module a target; `target` finds it by name."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from gnomon.errors import unknown_name
from gnomon.export.base import SERVING, TRAINING, Rendered, Target, TrainingTarget

TARGETS = SERVING + TRAINING


def target(name: str) -> Target:
    """The target of a name."""
    folded = name.strip().lower()
    if folded not in TARGETS:
        raise unknown_name("export target", name, TARGETS, hint=f"Known: {', '.join(TARGETS)}.")
    return cast(Target, import_module(f"gnomon.export.{folded}"))


def training_target(name: str) -> TrainingTarget:
    """One of the targets of training."""
    return cast(TrainingTarget, target(name))


__all__ = ["SERVING", "TARGETS", "TRAINING", "Rendered", "Target", "TrainingTarget", "target", "training_target"]
