"""The training techniques of one plan, applied one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gnomon.cost.host_link import ROOM
from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TrainingCase, TrainingTechnique, Values

if TYPE_CHECKING:  # serving imports nothing of training
    from gnomon.engines.training import RankMemory, StepTable, Traits


@dataclass(frozen=True, slots=True)
class Applied:
    """Training techniques with their values. Without any, a plan stays as it is."""

    pairs: tuple[tuple[TrainingTechnique, Values], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one, _ in self.pairs)

    @property
    def values(self) -> dict[str, Values]:
        """Every parameter of every technique, defaults too."""
        return {one.name: dict(values) for one, values in self.pairs}

    @property
    def lowered(self) -> tuple[tuple[str, Values], ...]:
        """Those that change the operators of a step or how the engine runs them, so that a step without them has other
        figures in every part."""
        plain = (TrainingTechnique.program, TrainingTechnique.traits)
        return tuple((one.name, values) for one, values in self.pairs if (type(one).program, type(one).traits) != plain)

    def traits(self, traits: Traits) -> Traits:
        for one, values in self.pairs:
            traits = one.traits(traits, values)
            if (rewritten := one.program(values)) is not None:
                traits = replace(traits, passes=(*traits.passes, rewritten))
        return traits

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe) -> str:
        """Why the first technique that does not apply here does not; empty where all apply."""
        for one, values in self.pairs:
            reason = one.reject_reason(case, strategy, recipe, values)
            if reason:
                return f"{one.name} does not apply: {reason}"
            strategy, recipe = one.rewrite(strategy, recipe, values)
        return ""

    def check(self, case: TrainingCase, strategy: Strategy, recipe: Recipe) -> None:
        reason = self.reject_reason(case, strategy, recipe)
        if reason:
            raise InputError(reason, where="strategy.techniques", hint="Leave it out, or change what it names.")

    def check_given(self, strategy: Strategy, recipe: Recipe, given: Mapping[str, Any]) -> None:
        """Reject a technique that sets a degree or a setting to another value than the user gave for it."""
        for one, values in self.pairs:
            strategy, recipe = one.rewrite(strategy, recipe, values)
            for name, value in given.items():
                holder = strategy if hasattr(strategy, name) else recipe
                if getattr(holder, name) != value:
                    where = f"strategy.{name}" if holder is strategy else f"engine.settings.{name}"
                    message = f"{value} is given, but the technique {one.name} sets {getattr(holder, name)}"
                    raise InputError(message, where=where, hint="Leave one of them out.")

    def rewrite(self, strategy: Strategy, recipe: Recipe) -> tuple[Strategy, Recipe]:
        for one, values in self.pairs:
            strategy, recipe = one.rewrite(strategy, recipe, values)
        return strategy, recipe

    def figures(self, found: StepTable, case: TrainingCase) -> StepTable:
        for one, values in self.pairs:
            found = one.figures(found, case, values)
        return found

    def memory(self, used: RankMemory, found: StepTable, rank: Any, case: TrainingCase) -> RankMemory:
        for one, values in self.pairs:
            used = one.memory(used, found, rank, case, values)
        return used

    def host_bytes(self, found: StepTable, case: TrainingCase) -> Floats:
        parts = [np.broadcast_to(one.host_bytes(found, case, values), found.grid.size) for one, values in self.pairs]
        return np.asarray(sum(parts, np.zeros(found.grid.size)))

    def host_fits(self, found: StepTable, case: TrainingCase) -> Any:
        """Whether each row's host memory holds the bytes that techniques place there."""
        host = case.pool.machine
        room = ROOM * host.memory_bytes if host else 0.0
        return self.host_bytes(found, case) <= room

    def waits(self, found: StepTable, step_s: Floats, case: TrainingCase) -> Floats:
        """Seconds added to a step; each technique sees the step without the waits of the others."""
        parts = [np.asarray(one.waits(found, step_s, case, values)) for one, values in self.pairs]
        return np.asarray(sum(parts, np.zeros(np.shape(step_s))))

    def assumed(self, found: StepTable, case: TrainingCase) -> tuple[str, ...]:
        """Assumptions about the machine that no input states, each with the technique's name."""
        texts = ((one.name, one.assumed(found, case, values)) for one, values in self.pairs)
        return tuple(f"{name}: {text}" for name, text in texts if text)
