"""Plans as files that other programs start. One module a target, and for engines the scripts that their operations
write; `target` finds it by name."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from gnomon.engines import operated_engines, training_target, training_targets
from gnomon.errors import unknown_name
from gnomon.export.base import Rendered, Target, serving_targets
from gnomon.export.serving_script import ServingScript
from gnomon.export.training_script import TrainingScript


def targets() -> tuple[str, ...]:
    """All targets by name."""
    return (*serving_targets(), *training_targets())


def target(name: str) -> Target:
    """The target of a name."""
    folded = name.strip().lower()
    if folded not in targets():
        folded = training_target(folded)
    if folded not in targets():
        raise unknown_name("export target", name, targets(), hint=f"Known: {', '.join(targets())}.")
    if folded in operated_engines():
        return ServingScript(folded)
    if folded in training_targets():
        return TrainingScript(folded)
    return cast(Target, import_module(f"gnomon.export.{folded}"))


__all__ = [
    "Rendered",
    "Target",
    "TrainingScript",
    "serving_targets",
    "target",
    "targets",
    "training_targets",
]
