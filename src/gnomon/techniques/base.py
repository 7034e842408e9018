"""What a technique is: an idea of a paper that any plan can use.

A technique says where it applies, what it changes, what it cannot be joined with, and its parameters with their ranges.
A plan names it with what differs from its defaults: `offload-optimizer:stride=2`. Everything it does not change it
hands on as it was, so techniques that do not exclude each other follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.machine import Machine
from gnomon.errors import InputError
from gnomon.spec import Model, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.workload import Floats

if TYPE_CHECKING:  # serving imports nothing of training
    from gnomon.engines.training import Grid, RankMemory, StepTable, Traits

Values = Mapping[str, Any]
Choice = NDArray[np.bool_]
CONSERVED = ("flops", "tokens", "parameters", "state bytes")
"""What a technique leaves as it is, unless it declares that it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A number with its range, or one of some words. `tried` are the values a search looks at."""

    name: str
    what: str
    default: float | str
    aliases: tuple[str, ...] = ()
    """Names it had before, which plans may still have."""
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    whole: bool = False
    """Whether it counts something."""
    floor: float = 0.0
    """The least value beside 0, where 0 means that it follows from the machine."""
    tried: tuple[float | str, ...] = ()

    @property
    def range(self) -> str:
        if self.choices:
            return " or ".join(self.choices)
        least = f", at least {self.floor:g} where it is not 0" if self.floor else ""
        return f"{self.low:g} to {self.high:g}{least}"

    def read(self, text: str, where: str) -> float | str:
        """A value as a plan writes it."""
        if self.choices:
            if text not in self.choices:
                raise InputError(f"{self.name} is '{text}'", where=where, hint=f"It is {self.range}.")
            return text
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"'{text}' is not a number", where=where, hint=f"It is {self.range}.") from None
        if not self.low <= value <= self.high or 0 < value < self.floor:
            raise InputError(f"{self.name} is {value:g}", where=where, hint=f"It is {self.range}.")
        if self.whole and value % 1:
            raise InputError(f"{self.name} is {value:g}, and no whole number", where=where, hint=f"It is {self.range}.")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a paper's idea is tried: plans with the technique against plans with something else, or with nothing."""

    paper: str
    """Its slug."""
    words: str
    against: str = ""
    """What a plan would have in its place; empty where a plan can do without both."""
    note: str = ""
    """What to know of the comparison."""
    told: tuple[str, ...] = ()
    """Parameters whose values whoever asks has given, so that no others are tried."""


def _exactly(name: str, spread: float) -> Floats | float:
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """A training job as a technique sees it."""

    model: Model
    pool: Pool
    load: TrainingLoad
    machine: Machine
    traits: Traits
    optimizer: str
    drawn: Callable[[str, float], Floats | float] = _exactly
    """A factor a row for what is known only so well: a name, and the standard deviation of its logarithm."""


def not_shared_out(case: TrainingCase, strategy: Strategy, recipe: Recipe) -> str:
    """Why a step's sequences, or experts, cannot be shared out over the copies of a plan; empty where they can."""
    ranks, batch = strategy.dp * strategy.cp, case.load.global_batch
    if ranks % strategy.ep:
        return f"experts cannot be spread over {strategy.ep} of {ranks} ranks"
    each = strategy.dp * recipe.micro_batch
    return f"{batch} sequences cannot be cut into micro-batches of {strategy.dp} copies" if batch % each else ""


class Technique:
    """What every technique says of itself; what it does stands in the contract of its work."""

    name: ClassVar[str]
    title: ClassVar[str]
    idea: ClassVar[str]
    """One sentence: what it does and what that costs."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Names it had before, which plans may still have."""
    work: ClassVar[str]
    """`training` or `serving`."""
    trials: ClassVar[tuple[Trial, ...]]
    """One a paper it comes from."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    excludes: ClassVar[tuple[str, ...]] = ()
    """Names of techniques that do the same work another way."""
    searched: ClassVar[bool] = True
    """Whether a plan search tries it when asked to: not what it tries anyway, or what only costs."""
    changes: ClassVar[frozenset[str]] = frozenset()
    """What it does not leave as it is: of `CONSERVED`, in serving of `SERVING_CONSERVED`."""

    def expressed_by_config(self, values: Values) -> bool:
        """Whether the other words of a plan say all of it, so that whoever starts the plan need not know it."""
        return False


class TrainingTechnique(Technique):
    """The contract in training. Whatever a technique does not override it leaves as it is."""

    work = "training"

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        """Why it cannot be used here; empty where it can."""
        return ""

    def ways(self, grid: Grid) -> Mapping[str, Choice] | None:
        """Which plans of a grid use it already, by what they have to be called beside their degrees; the others do
        without. None where no plan of a grid does."""
        return None

    def settled(self, strategy: Strategy, recipe: Recipe, values: Values) -> tuple[Strategy, Recipe]:
        """The plan's degrees and recipe with it."""
        return strategy, recipe

    def figures(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """Seconds of the pieces of a step, for every row of a grid of plans."""
        return found

    def memory(self, used: RankMemory, found: StepTable, rank: Any, case: TrainingCase, values: Values) -> RankMemory:
        """Bytes of one pipeline rank of every row."""
        return used

    def host_bytes(self, found: StepTable, case: TrainingCase, values: Values) -> Floats | float:
        """Bytes that every row keeps in the memory of one host."""
        return 0.0

    def waits(self, found: StepTable, step_s: Floats, case: TrainingCase, values: Values) -> Floats | float:
        """Seconds that a step takes longer for what goes on beside it."""
        return 0.0

    def assumed(self, found: StepTable, case: TrainingCase, values: Values) -> str:
        """What it takes a machine to have that nobody has told; empty where there is nothing."""
        return ""
