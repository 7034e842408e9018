"""The resolved question for a serving plan: the load, the goals and the fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gnomon import catalog
from gnomon.engines.base import Case
from gnomon.errors import named_as
from gnomon.planning.deploy import Binding
from gnomon.planning.serving.arriving import arriving
from gnomon.planning.serving.replicas import Setup
from gnomon.search import Objective, SearchJob
from gnomon.search import objective as named_objective
from gnomon.search.arrivals import Arrivals
from gnomon.spec import Chip, Cluster, EngineChoice, Goal, Model
from gnomon.spec.plan import AGGREGATED, MIXED, WHOLE
from gnomon.techniques import WHERE
from gnomon.units import format_duration, format_rate


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanTask:
    """A load to be served on a fleet within goals."""

    model: Model
    reference: str
    """The name the model was given by."""
    fleet: Cluster
    bindings: Mapping[str, Binding]
    """By the chip's name."""
    engine: EngineChoice
    """With the settings as they were given."""
    load: Arrivals
    """As it was asked for; see `arrivals`."""
    goals: tuple[Goal, ...]
    asked_objective: str | None
    dtypes: tuple[str, ...] | None
    """Number formats to choose from, where they were named."""
    kv_dtype: str
    techniques: tuple[str, ...]
    requests: int | None
    """How many requests were asked for, where that was said."""
    pools: str = AGGREGATED
    """Which plans there are; one of `POOL_KINDS`."""
    kv_transfer: str = WHOLE
    by_rate: bool = False
    """Whether the best plan is also simulated at other rates."""
    weigh: bool = False
    """Whether techniques and options of the engine are weighed beside those that are given."""
    chosen: tuple[str, ...] = ()
    """What was weighed and is in every plan of this task, beside techniques and the format of the KV cache."""
    sensitivity: bool = False
    """Whether it is said what the best plan would be if the inputs were otherwise."""
    accepted: float = 1.0
    """Times the drafts that are accepted by the settings."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The question as it was given, without what has its default."""

    @cached_property
    def arrivals(self) -> Arrivals:
        """The load as replicas see it, with what techniques make of it."""
        with named_as(WHERE, "--with"):
            return arriving(self.load, self.techniques, Case(model=self.model, pool=self.fleet.pools[0]))

    @cached_property
    def job(self) -> SearchJob:
        output_tokens = float(self.arrivals.whole.output_tokens.mean())
        return SearchJob(goals=self.goals, rate_per_s=self.arrivals.rate_per_s, output_tokens=output_tokens)

    @property
    def objective(self) -> Objective:
        """A load without a rate is planned for throughput."""
        return named_objective((self.asked_objective or "cost") if self.arrivals.rate_per_s else "throughput")

    @cached_property
    def setup(self) -> Setup:
        """What all plans share."""
        return Setup(
            model=self.model, bindings=self.bindings, engine=self.engine, kv_dtype=self.kv_dtype,
            techniques=self.techniques, accepted=self.accepted, images=self.arrivals.load.images,
            adapters=self.arrivals.whole.adapters,
        )  # fmt: skip

    @property
    def title(self) -> str:
        goals = ", ".join(f"{goal.name} {format_duration(goal.limit_s)}" for goal in self.job.goals)
        aims = {"cost": "cheapest", "throughput": "highest-throughput", "latency": "fastest", "energy": "lowest-energy"}
        within = f" that meets {goals}" if goals else ""
        name = catalog.model_title(self.model.name)
        applied = f" with {', '.join(self.techniques)}" if self.techniques else ""
        return f"{name} on {self.chips}, {self.stream}: {aims[self.objective.name]} plan{applied}{within}"

    @property
    def chips(self) -> str:
        joint = " and " if self.pools == MIXED else " or "
        return joint.join(f"{pool.chip.short}:{pool.count}{pool.limited_words}" for pool in self.fleet.pools)

    def chip(self, name: str) -> Chip:
        return next(pool.chip for pool in self.fleet.pools if pool.chip.name == name)

    @property
    def stream(self) -> str:
        load = self.arrivals.load
        what = load.trace or f"{load.input_tokens:,} in and {load.output_tokens:,} out"
        if load.images:
            counted = self.arrivals.trace is not None and self.arrivals.trace.pictured
            what += f" with {'up to ' if counted else ''}{load.images.words}"
        least = "at least " if self.objective.name == "throughput" else ""
        return f"{what} at {least}{format_rate(self.job.rate_per_s)}" if self.job.rate_per_s else what
