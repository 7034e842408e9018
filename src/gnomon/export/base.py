"""The contract of an export target: a plan in, files out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from gnomon.errors import InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.recipe import recipe_of
from gnomon.spec import Plan, TrainingLoad
from gnomon.techniques import Words, applied, beyond_words, served

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
    names = plan.strategy.techniques
    beyond = beyond_words(names)
    if isinstance(plan.load, TrainingLoad):
        beyond = tuple(text for text in names if text in beyond or not _settled(plan, text))
    return replace(plan, strategy=replace(plan.strategy, techniques=beyond))


def _settled(plan: Plan, text: str) -> bool:
    """Whether the plan has the degrees and the recipe already that a technique asks for."""
    own = plan.strategy, recipe_of(plan.engine.settings)
    return applied([text]).settled(*own) == own


def require_techniques(plan: Plan) -> None:
    """Refuse what the plan's work does not know, or what does not go with its format, as whoever prices it does."""
    names = plan.strategy.techniques
    if not names:
        return
    if isinstance(plan.load, TrainingLoad):
        applied(names)
        return
    words = Words(
        model=load_model(plan.model),
        pool=parse_pool(f"{plan.chip}:{plan.chips}", "chip"),
        strategy=plan.strategy,
        dtype=plan.dtype or None,
        kv_dtype=plan.kv_dtype or None,
        settings=plan.engine.settings,
    )
    served(names).settled(words)


def require_load(plan: Plan, target: str) -> None:
    """Serving targets take plans that serve, training targets plans that train."""
    trains = isinstance(plan.load, TrainingLoad)
    fitting = TRAINING if trains else SERVING
    if target not in fitting:
        kind = "training" if trains else "serving"
        hint = f"Targets for {kind}: {', '.join(fitting)}."
        raise InputError(f"a plan for {kind} cannot be exported to '{target}'", where="load", hint=hint)
    require_techniques(plan)
