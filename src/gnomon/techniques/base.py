"""The contract of techniques: ideas of papers that any plan can use.

A technique states where it applies, what it changes, what it excludes, and its parameters with their ranges. A plan
names it with the values that differ from its defaults: `offload-optimizer:stride=2`. Whatever it does not change it
passes on, so techniques that do not exclude each other can be combined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.machine import Machine
from gnomon.errors import InputError
from gnomon.spec import Model, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.workload import Floats

if TYPE_CHECKING:  # serving imports nothing of training
    from gnomon.engines.training import Grid, RankMemory, StepTable, Traits
    from gnomon.graph.layers import NodePass

Values = Mapping[str, Any]
Choice = NDArray[np.bool_]
CONSERVED = ("flops", "tokens", "parameters", "state bytes")
"""What a technique leaves as it is, unless it declares that it does not."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number with its range, or one of several choices. `tried` are the values that a search tries."""

    name: str
    what: str
    _: KW_ONLY
    default: float | str
    aliases: tuple[str, ...] = ()
    """Earlier names, which plans may still use."""
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    whole: bool = False
    """Whether it must be an integer."""
    floor: float = 0.0
    """The smallest value other than 0, where 0 means that the machine determines it."""
    tried: tuple[float | str, ...] = ()

    @property
    def range(self) -> str:
        if self.choices:
            return " or ".join(self.choices)
        least = f", at least {self.floor:g} if not 0" if self.floor else ""
        return f"{self.low:g} to {self.high:g}{least}"

    def read(self, text: str, where: str) -> float | str:
        """A value as a plan writes it."""
        if self.choices:
            if text not in self.choices:
                raise InputError(f"{self.name} cannot be '{text}'", where=where, hint=f"Allowed: {self.range}.")
            return text
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"'{text}' is not a number", where=where, hint=f"Allowed: {self.range}.") from None
        if not self.low <= value <= self.high or 0 < value < self.floor:
            raise InputError(f"{self.name} = {value:g} is out of range", where=where, hint=f"Allowed: {self.range}.")
        if self.whole and value % 1:
            raise InputError(f"{self.name} = {value:g} is not an integer", where=where, hint=f"Allowed: {self.range}.")
        return value


def bandwidth(name: str, what: str, high: float = 1000.0, aliases: tuple[str, ...] = ()) -> Parameter:
    """A parameter in GB/s, 0 where the machine determines it."""
    return Parameter(name, what, default=0.0, high=high, floor=0.001, aliases=aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a paper's idea is tried: plans with the technique against plans with another one, or with none."""

    paper: str
    """Its slug."""
    words: str
    against: str = ""
    """The technique of the baseline; empty where the baseline is a plan without any."""
    note: str = ""
    """What a reader should know about the comparison."""
    given: tuple[str, ...] = ()
    """Parameters whose values the user has given, so that no others are tried."""


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
    """A factor per row for an uncertain quantity, by its name and the standard deviation of its logarithm."""


def not_shared_out(case: TrainingCase, strategy: Strategy, recipe: Recipe) -> str:
    """Why a step's sequences, or experts, cannot be divided over data-parallel ranks; empty where they can."""
    ranks, batch = strategy.dp * strategy.cp, case.load.global_batch
    if ranks % strategy.ep:
        return f"experts cannot be sharded over {strategy.ep} of {ranks} ranks"
    each = strategy.dp * recipe.micro_batch
    return (
        f"{batch} sequences cannot be divided into micro-batches over {strategy.dp} data-parallel ranks"
        if batch % each
        else ""
    )


class Technique:
    """What every technique declares; what it does is in `TrainingTechnique` or `ServingTechnique`."""

    name: ClassVar[str]
    title: ClassVar[str]
    idea: ClassVar[str]
    """One sentence: what it does and what that costs."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Earlier names, which plans may still use."""
    work: ClassVar[str]
    """`training` or `serving`."""
    trials: ClassVar[tuple[Trial, ...]]
    """One per paper it comes from."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    excludes: ClassVar[tuple[str, ...]] = ()
    """Names of techniques that it cannot be combined with."""
    searched: ClassVar[bool] = True
    """Whether a plan search may add it: not what the search varies anyway, or what only costs time."""
    changes: ClassVar[frozenset[str]] = frozenset()
    """What it does not leave as it is: of `CONSERVED`, in serving of `SERVING_CONSERVED`."""

    def expressed_by_config(self, values: Values) -> bool:
        """Whether the rest of a plan's configuration expresses it, so that an engine runs it without knowing it."""
        return False


class TrainingTechnique(Technique):
    """The contract of training techniques. Whatever a technique does not override it leaves as it is."""

    work = "training"

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        """Why it cannot be used here; empty where it can."""
        return ""

    def ways(self, grid: Grid) -> Mapping[str, Choice] | None:
        """Which plans of a grid use it already, by the suffix that names them beside their degrees. None where no plan
        of a grid does."""
        return None

    def rewrite(self, strategy: Strategy, recipe: Recipe, values: Values) -> tuple[Strategy, Recipe]:
        """The plan's degrees and recipe with the technique applied."""
        return strategy, recipe

    def program(self, values: Values) -> NodePass | None:
        """What it rewrites of the operators of a step, before their gradients are derived; None where nothing."""
        return None

    def traits(self, traits: Traits, values: Values) -> Traits:
        """How the engine trains with it: its kernels, what it overlaps, the states of its optimizers."""
        return traits

    def figures(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """Seconds of the pieces of a step, for every row of a grid of plans."""
        return found

    def memory(self, used: RankMemory, found: StepTable, rank: Any, case: TrainingCase, values: Values) -> RankMemory:
        """Bytes of one pipeline rank, for every row of a grid of plans."""
        return used

    def host_bytes(self, found: StepTable, case: TrainingCase, values: Values) -> Floats | float:
        """Bytes that every row holds in the memory of one host."""
        return 0.0

    def waits(self, found: StepTable, step_s: Floats, case: TrainingCase, values: Values) -> Floats | float:
        """Seconds that the technique adds to a step."""
        return 0.0

    def assumed(self, found: StepTable, case: TrainingCase, values: Values) -> str:
        """What it assumes of the machine that no input states; empty where there is nothing."""
        return ""
