"""A decision that can be written down, compared and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.spec.training import TrainingLoad
from gnomon.spec.workload import Goal, ServingLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Parallel degrees and techniques. It never grows a field for one paper."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    dp: int = 1
    vp: int = 1
    """Parts of the network each pipeline stage holds, taken in turn."""
    techniques: tuple[str, ...] = ()

    @property
    def ranks(self) -> int:
        """Chips that the degrees take where each has chips of its own, as in training; see `Plan.ranks`."""
        return self.tp * self.pp * self.cp * max(1, self.dp)


DEFAULT_ENGINE = "vllm"
"""What serves where no engine is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """An engine, its version, and the settings that differ from its defaults."""

    name: str = DEFAULT_ENGINE
    version: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


ROUTERS = ("random", "round-robin", "least-requests")
"""Random assignment is what a Kubernetes Service does; by least-requests a request goes to the replica with the fewest
unfinished ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A model on chips under an engine, for a load and goals; `predicted` holds the figures that chose it."""

    model: str
    chip: str
    per_node: int = 0
    """Chips of a node; 0 where it is the chip's usual number."""
    replicas: int
    router: str = "random"
    """How requests are assigned to replicas; one of `ROUTERS`."""
    strategy: Strategy
    dtype: str
    kv_dtype: str = ""
    engine: EngineChoice
    load: ServingLoad | TrainingLoad | None = None
    goals: tuple[Goal, ...] = ()
    predicted: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Degrees that the plan's file names, which a technique may not set otherwise."""
    power_limit_w: float = 0.0
    """What each chip may draw, where that is lowered; 0 for the chip's own limit."""
    checkpoint: str = ""
    """What holds the weights in `dtype`, a hub address or a folder, where `model` itself does not."""

    @property
    def trains(self) -> bool:
        return isinstance(self.load, TrainingLoad)

    @property
    def ranks(self) -> int:
        """Chips of one replica. Context parallelism of serving spreads the cache inside the tensor-parallel group and
        takes no chips of its own."""
        strategy = self.strategy if self.trains else replace(self.strategy, cp=1)
        return strategy.ranks

    @property
    def chips(self) -> int:
        return self.replicas * self.ranks
