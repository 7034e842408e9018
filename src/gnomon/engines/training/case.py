"""A training job as techniques see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from gnomon.cost.machine import Machine
from gnomon.engines.base import Case
from gnomon.engines.training.batches import most_tokens, row_tokens
from gnomon.engines.training.grid import Grid, Ints
from gnomon.engines.training.step_table import StepTable
from gnomon.engines.training.traits import Traits
from gnomon.spec import TrainingLoad
from gnomon.spec.workload import Floats


def exactly(name: str, spread: float) -> Floats | float:
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase(Case):
    """A model that is trained on chips, and plans for it: one row of `plans` each, of a single plan one."""

    work: ClassVar[str] = "training"
    load: TrainingLoad
    machine: Machine
    """What prices operators and collectives."""
    traits: Traits
    """How the engine trains."""
    optimizer: str
    dtype: str
    plans: Grid
    priced: StepTable | None = None
    drawn: Callable[[str, float], Floats | float] = exactly
    """A factor per row for an uncertain quantity, by its name and the standard deviation of its logarithm."""

    @property
    def table(self) -> StepTable:
        """Seconds and parameters of every plan, once they are priced."""
        assert self.priced is not None, "asked before its plans are priced"
        return self.priced

    @property
    def micros(self) -> Ints:
        """Micro-batches of a step, of every plan."""
        return self.load.global_batch // (self.plans.dp * self.plans.micro_batch)

    @property
    def tokens(self) -> Floats | Ints:
        """Of a micro-batch on one rank; of the mean one, where sequences differ in length."""
        if self.load.sequences is None:
            return self.plans.micro_batch * (self.load.seq // self.plans.cp)
        return row_tokens(self.model, self.load, self.plans) / self.plans.cp

    @property
    def most_tokens(self) -> Floats | Ints:
        """Of the fullest micro-batch on one rank."""
        if self.load.sequences is None:
            return self.tokens
        return most_tokens(self.model, self.load, self.plans) / self.plans.cp

    def at(self, table: StepTable) -> Self:
        """The plans that a table has priced."""
        return replace(self, plans=table.grid, priced=table)

    def having(self, **choices: Ints | int | str) -> Self:
        """The plans with other choices, by the names of `Grid`: one for all or one each."""
        return replace(self, plans=self.plans.having(**choices))
