"""Engine replicas of the plans under search: what fits, its limits, and step costs made no more often than needed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gnomon.cost.step import StepCost
from gnomon.engines.base import Deployment, Engine, ServingCase
from gnomon.errors import DoesNotFitError
from gnomon.planning.deploy import Binding
from gnomon.planning.serving.images import with_images
from gnomon.search import PlanFamily
from gnomon.sim.serving import Curves
from gnomon.spec import EngineChoice, Model, ServingLimits, Strategy
from gnomon.spec.loads.images import RequestImages

CONTEXT_STEP = 1024
"""A context that must shrink to fit the cache shrinks to a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine replica of a family, ready to simulate. Replicas with one `cost_key` share their cost."""

    engine: Engine
    deployment: Deployment
    limits: ServingLimits
    settings: Mapping[str, Any]
    """What differs from the engine's defaults."""
    cost: StepCost
    curves: Curves
    """Sums of the cost's decode curves, for all runs on it."""
    cost_key: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all plans share."""

    model: Model
    bindings: Mapping[str, Binding]
    """By the chip's name."""
    engine: EngineChoice
    kv_dtype: str
    techniques: tuple[str, ...] = ()
    images: RequestImages | None = None
    adapters: int = 0
    """Different LoRA adapters that requests ask for."""
    accepted: float = 1.0
    """Times the drafts that are accepted by the settings."""

    @property
    def bound_engine(self) -> Engine:
        """The engine, which is the same on all chips."""
        return next(iter(self.bindings.values())).engine

    def deploy_family(self, family: PlanFamily, settings: Mapping[str, Any]) -> tuple[Engine, Deployment]:
        """One replica of a family on just the chips it needs."""
        strategy = Strategy(tp=family.tp, ep=family.ep, dp=family.dp, pp=family.pp, techniques=self.techniques)
        return self._deployed(family.chip, strategy, family.dtype, settings)

    def deploy(
        self, chip: str, tp: int, dtype: str, settings: Mapping[str, Any], ep: int = 1
    ) -> tuple[Engine, Deployment]:
        """One replica on just the chips it needs."""
        return self._deployed(chip, Strategy(tp=tp, ep=ep, techniques=self.techniques), dtype, settings)

    def _deployed(
        self, chip: str, strategy: Strategy, dtype: str, settings: Mapping[str, Any]
    ) -> tuple[Engine, Deployment]:
        binding = self.bindings[chip]
        draft = ServingCase(
            model=self.model,
            pool=replace(binding.pool, count=strategy.ranks),
            strategy=strategy,
            dtype=dtype,
            kv_dtype=self.kv_dtype or None,
            settings=settings,
        )
        return binding.engine, with_images(binding.engine, binding.deploy(draft), self.images)


class Replicas:
    """The replica of each family, or nothing where the model and the longest request do not fit."""

    def __init__(self, setup: Setup, space: Iterable[PlanFamily], longest: int) -> None:
        self._setup, self._longest = setup, longest
        self._made: dict[PlanFamily, Replica | None] = {}
        self._costs: dict[Hashable, tuple[StepCost, Curves]] = {}
        self._widest: dict[str, int] = {}
        for family in space:
            for name, value in family.settings:
                self._widest[name] = max(value, self._widest.get(name, 0))

    def find(self, family: PlanFamily) -> Replica | None:
        family = family.alone or family
        if family not in self._made:
            self._made[family] = self._make(family)
        return self._made[family]

    def __getitem__(self, family: PlanFamily) -> Replica:
        replica = self.find(family)
        assert replica is not None, "only families that fit are asked for"
        return replica

    def _make(self, family: PlanFamily) -> Replica | None:
        """A replica whose context is cut to what its cache holds, unless the settings fix it."""
        settings = dict(self._setup.engine.settings) | dict(family.settings)
        engine, whole = self._deploy(family, settings)
        memory = engine.memory(whole)
        if memory.kv_blocks <= 0:
            return None
        deployment = whole
        most = engine.capacity(whole.settings).context
        held = memory.longest(most) // CONTEXT_STEP * CONTEXT_STEP
        cut = engine.settings_for(context=held)
        if not settings.keys() & cut.keys() and self._longest <= held and memory.longest(most) < most:
            settings |= cut
            engine, deployment = self._deploy(family, settings)
        try:
            limits = _accepting(engine.limits(deployment), self._setup.accepted)
        except DoesNotFitError:
            return None
        if self._longest > min(limits.max_context, limits.kv_blocks * limits.block_tokens):
            return None
        key, (cost, curves) = self._cost(engine, whole)
        return Replica(
            engine=engine,
            deployment=deployment,
            limits=limits,
            settings=settings,
            cost=cost,
            curves=curves,
            cost_key=key,
        )

    def _deploy(self, family: PlanFamily, settings: Mapping[str, Any]) -> tuple[Engine, Deployment]:
        return self._setup.deploy_family(family, settings)

    def _cost(self, engine: Engine, deployment: Deployment) -> tuple[Hashable, tuple[StepCost, Curves]]:
        """One cost for the widest of the settings it only has to cover, shared by all that it fits."""
        settings = dict(deployment.settings)
        for name in engine.cost_ranges:
            settings[name] = max(settings[name], self._widest.get(name, 0))
        wide = replace(deployment, settings=settings)
        place = (wide.pool.chip.name, wide.strategy, wide.dtype, wide.kv_dtype)
        key = (place, engine.cost_key(wide))
        if key not in self._costs:
            self._costs[key] = (engine.step_cost(wide, self._longest), {})
        return key, self._costs[key]


def _accepting(limits: ServingLimits, times: float) -> ServingLimits:
    """Limits under which so many times the drafts are accepted."""
    if times == 1.0 or not limits.draft_shares:
        return limits
    shares = tuple((weight, tuple(min(1.0, times * each) for each in by)) for weight, by in limits.draft_shares)
    return replace(limits, draft_shares=shares)
