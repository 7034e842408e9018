"""The contract of an export target: a plan in, files out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from gnomon.errors import InputError
from gnomon.spec import Plan, TrainingLoad
from gnomon.techniques import beyond_words

SERVING = ("vllm", "kubernetes")
TRAINING = ("megatron", "torchrun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """Files by name, the command that starts one replica or the training, and what the target cannot say."""

    files: Mapping[str, str]
    command: str
    engine: str
    version: str
    not_expressed: tuple[str, ...]


class Target(Protocol):
    """A module of this package."""

    NAME: str
    SUMMARY: str

    def render(self, plan: Plan) -> Rendered:
        """The plan's files. Raises InputError where the plan's load or engine is not the target's."""


def in_other_words(plan: Plan) -> Plan:
    """The plan without the techniques that its format, degrees and settings say already."""
    return replace(plan, strategy=replace(plan.strategy, techniques=beyond_words(plan.strategy.techniques)))


def require_load(plan: Plan, target: str) -> None:
    """Serving targets take plans that serve, training targets plans that train."""
    trains = isinstance(plan.load, TrainingLoad)
    fitting = TRAINING if trains else SERVING
    if target not in fitting:
        kind = "training" if trains else "serving"
        hint = f"Targets for {kind}: {', '.join(fitting)}."
        raise InputError(f"a plan for {kind} cannot be exported to '{target}'", where="load", hint=hint)
