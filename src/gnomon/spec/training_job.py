"""A training plan with every name in it resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.spec.cluster import Pool
from gnomon.spec.model import Model
from gnomon.spec.plan import EngineChoice, Plan, Strategy
from gnomon.spec.training import Recipe, TrainingLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A model trained on chips in one way: what engines check, price, write a command for and run."""

    model: Model
    pool: Pool
    strategy: Strategy
    recipe: Recipe
    load: TrainingLoad
    dtype: str
    name: str = ""
    """The model as it was asked for; its own name where nothing is said."""
    engine: str = ""
    """The engine that the plan is for, `name@version`."""
    techniques: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The techniques of the strategy by name, with the values of all their parameters: what an engine that runs or
    writes them reads."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The model's config.json, of which a launch command repeats what a `Model` does not have; empty where unknown."""

    def __post_init__(self) -> None:
        """The network knows which of its layers the recipe keeps in 16 bits."""
        if (wide := self.recipe.wide_layers) and len(wide) == 2 and self.model.wide_layers != wide:
            object.__setattr__(self, "model", replace(self.model, wide_layers=wide))

    @property
    def plan(self) -> Plan:
        """The job as a plan with names, as it is stored and exported."""
        name, _, version = self.engine.partition("@")
        return Plan(
            model=self.name or self.model.name,
            chip=self.pool.chip.reference,
            per_node=self.pool.unusual_node_size,
            power_limit_w=self.pool.power_limit_w,
            replicas=1,
            strategy=self.strategy,
            dtype=self.dtype,
            engine=EngineChoice(name=name, version=version, settings=self.recipe.settings),
            load=self.load,
        )
