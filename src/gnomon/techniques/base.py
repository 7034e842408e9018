"""The contract of techniques: ideas of papers that any plan can use.

A technique states where it applies, what it changes, what it excludes, and its parameters with their ranges. A plan
names it with the values that differ from its defaults: `offload-optimizer:stride=2`. Whatever it does not change it
passes on, so techniques that do not exclude each other can be combined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gnomon.engines.base import Case
from gnomon.errors import InputError

if TYPE_CHECKING:  # serving imports nothing of training, and one step no simulator
    from gnomon.cost.lines import Steps, Wait
    from gnomon.engines.techniques import RouterMaker
    from gnomon.engines.training import Grid, Traits
    from gnomon.engines.training.side import SideGroup
    from gnomon.graph.layers import NodePass
    from gnomon.spec import Requests

C = TypeVar("C", bound=Case)
Values = Mapping[str, Any]
Choice = NDArray[np.bool_]
Rejection = tuple[Choice | bool, str | Callable[[int], str]]
"""Which plans are rejected, and why: in one text for all of them, or by the row of each. An empty text rejects none."""
Maker = Callable[..., Any]
"""What makes a scheduler or a KV cache of requests and limits."""

TRAINING: Final = "training"
SERVING: Final = "serving"
CONSERVED: Mapping[str, tuple[str, ...]] = {
    TRAINING: ("flops", "model flops", "tokens", "parameters", "state bytes", "activation bytes"),
    SERVING: ("flops", "tokens", "parameters", "weight bytes", "cache bytes", "precision", "requests", "schedule"),
}
"""What a technique leaves as it is, unless it declares that it does not. The effect of a changed precision on the
quality of answers is not predicted."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number with its range, or one of several choices, or some of them (`several`), joined by `+`. `tried` are the
    values that a search tries."""

    name: str
    what: str
    _: KW_ONLY
    default: float | str
    aliases: tuple[str, ...] = ()
    """Earlier names, which plans may still use."""
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    several: bool = False
    """Whether it is some of the choices: `core_attn+attn_proj`."""
    whole: bool = False
    """Whether it must be an integer."""
    floor: float = 0.0
    """The smallest value other than 0, where 0 means that the machine determines it."""
    tried: tuple[float | str, ...] = ()

    @property
    def range(self) -> str:
        if self.choices:
            return f"{'+'.join(self.choices)}, or some of them" if self.several else " or ".join(self.choices)
        least = f", at least {self.floor:g} if not 0" if self.floor else ""
        return f"{self.low:g} to {self.high:g}{least}"

    def read(self, text: str, where: str) -> float | str:
        """A value as a plan writes it."""
        if self.choices:
            named = text.split("+") if self.several else [text]
            if len(set(named)) < len(named) or not set(named) <= set(self.choices):
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


class Technique(Generic[C]):
    """An idea that plans name. A hook is given what it may change, then the case and the values of the parameters; what
    a technique does not override stays as it is.

    `C` is the case that it knows: `TrainingCase` (`engines.training.case`), `ServingCase` (`engines.base`), or `Case`
    for a technique of both.
    """

    name: ClassVar[str]
    """Its file is named after it."""
    title: ClassVar[str]
    idea: ClassVar[str]
    """One sentence: what it does and what that costs."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Earlier names, which plans may still use."""
    work: ClassVar[tuple[str, ...]]
    """`TRAINING`, `SERVING` or both."""
    trials: ClassVar[tuple[Trial, ...]] = ()
    """One per paper of the index that it comes from."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    excludes: ClassVar[tuple[str, ...]] = ()
    """Names of techniques that it cannot be combined with."""
    searched: ClassVar[bool] = True
    """Whether a plan search may add it: not what the search varies anyway, or what only costs time."""
    last_resort: ClassVar[str] = ""
    """Training: what it trains in the place of the network, where it lets fit what fits in no other way: advice of a
    plan search that finds nothing. Empty where it trains the network."""
    simulated: ClassVar[bool] = True
    """Whether a load can be simulated with it: its effect on a step does not depend on the requests."""
    changes: ClassVar[frozenset[str]] = frozenset()
    """What it does not leave as it is: of `CONSERVED` of its work."""
    follows: ClassVar[Mapping[str, str]] = {}
    """What a part of a step, or of the memory, follows from, by its name in answers (`optimizer_s`, `waits_s`,
    `host_bytes`): how `gnomon explain` opens it."""
    remedies: ClassVar[Mapping[str, str]] = {}
    """What would shorten what binds a step, by its name in answers (`the optimizer`)."""

    # Where it applies.

    def reject(self, case: C, values: Values) -> Iterable[Rejection]:
        """Why it cannot be used, the first reason first. In training for all plans at once, in serving for one."""
        return ()

    def rewrite(self, case: C, values: Values) -> C:
        """What a configuration can say of it: of training the choices of `case.plans`; of serving network, format,
        degrees and settings."""
        return case

    def expressed_by_config(self, values: Values) -> bool:
        """Whether that says all of it, so that an engine runs it without knowing it."""
        return False

    def ways(self, plans: Grid) -> Mapping[str, Choice] | None:
        """Which plans of a training search use it already, by the suffix that names them beside their degrees. None
        where no plan does."""
        return None

    # What runs.

    def program(self, case: C, values: Values) -> NodePass | None:
        """What it rewrites of the operators of embedding, layers and head, in training before their gradients are
        derived; None where nothing. The same for all plans."""
        return None

    def traits(self, case: C, values: Values) -> Traits:
        """Training: how the engine trains with it, from `case.traits`: kernels, overlap, states of its optimizers."""
        return case.traits  # type: ignore[attr-defined, no-any-return]

    def brings_gemm_kernels(self, values: Values) -> bool:
        """Serving: whether it has its own GEMM kernels for quantized weights, so that the engine need not support the
        format."""
        return False

    def streams_weights(self, values: Values) -> bool:
        """Serving: whether it keeps weights of layers off the chip and copies them ahead of their use."""
        return False

    # What that takes.

    def costs(self, found: Any, case: C, values: Values) -> Any:
        """Training: the `StepTable`, whose columns are seconds of the pieces of a step, one row per plan. Serving: the
        `StepModel`, which prices a step and makes the simulator's table."""
        return found

    def waits(self, steps: Steps, case: C, values: Values) -> Wait | None:
        """Seconds on top of steps, never negative. Steps with them are never shorter where steps without them are
        longer: what overlaps may be fewer by as much as a step is longer, no more. Bounds stay bounds."""
        return None

    def tasks(self, case: C, values: Values) -> Iterable[SideGroup]:
        """Training: what runs beside the passes of micro-batches in lanes of its own: copies to the host and back,
        reductions and gathers; each group with room of its own on the chip, which its bytes of `memory` have to be."""
        return ()

    def memory(self, used: Any, case: C, values: Values) -> Any:
        """Bytes of one rank by tier: on its chip by part, in its host's memory (`host`) and on its disks (`nvme`). Of
        training a `RankMemory`, one row per plan; of serving a `RankBytes`."""
        return used

    def kv_cache(self, used: Any, case: C, values: Values) -> Any:
        """Serving: the `MemoryUse` of a rank: blocks, and those that a sequence holds."""
        return used

    # Serving under load.

    def policy(self, make: Maker, case: C, values: Values) -> Maker:
        """What makes the scheduler (`sim.serving.base.Policy`) of requests, limits and cache."""
        return make

    def cache(self, make: Maker, case: C, values: Values) -> Maker:
        """What makes the KV cache (`sim.serving.caches.base.CacheModel`) of requests and limits."""
        return make

    def requests(self, found: Requests, case: Case, values: Values) -> Requests:
        """What clients send: as many requests, in the same order."""
        return found

    def router(self, make: RouterMaker, case: Case, values: Values) -> RouterMaker:
        """What makes the router (`sim.serving.routers.Router`) of a seed."""
        return make

    # What answers say.

    def metrics(self, used: Any, case: C, values: Values) -> Mapping[str, float]:
        """Further figures of an answer about memory, by name; names of seconds end in `_s`. `used` is the `MemoryUse`
        of serving, or of training the `RankMemory` of the fullest rank."""
        return {}

    def assumed(self, case: C, values: Values) -> str:
        """What it assumes of the machine that no input states; empty where there is nothing."""
        return ""


LOAD_HOOKS = ("policy", "cache", "requests", "router")
STEP_HOOKS = ("rewrite", "program", "costs", "waits", "memory", "kv_cache", "metrics")


def changes_only_loads(one: Technique[Any]) -> bool:
    """Whether it changes what becomes of requests under load, and neither a step nor its memory."""
    return overrides(one, *LOAD_HOOKS) and not overrides(one, *STEP_HOOKS)


def overrides(one: Technique[Any], *hooks: str) -> bool:
    """Whether a technique changes any of these."""
    return any(getattr(type(one), hook) is not getattr(Technique, hook) for hook in hooks)
