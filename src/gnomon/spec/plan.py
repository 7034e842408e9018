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


MOST_SERVERS = 4096
"""A router is told the address of every server."""
ROUTERS = ("random", "round-robin", "least-requests", "least-kv", "prefix-aware", "weighted")
"""Random assignment is what a Kubernetes Service does; by least-requests a request goes to the replica with the fewest
unfinished ones, by least-kv to the one with the least KV cache in use, prefix-aware to the one that computed the
beginning of its prompt, and weighted at random in proportion to the replicas' weights."""
LOAD_AWARE = ("least-requests", "least-kv", "prefix-aware")
"""Routers that look at the replicas, which are then simulated together."""
AGGREGATED, DISAGGREGATED, MIXED, AUTO = POOL_KINDS = ("aggregated", "disaggregated", "mixed", "auto")
"""Which plans a search is for: equal replicas, prefill and decode replicas, replicas of several kinds of chip behind
one router, or all of them."""
BOTH, PREFILL, DECODE = ROLES = ("both", "prefill", "decode")
"""What the replicas of a pool do: prompts and answers, or one of them."""
WHOLE, LAYERWISE = KV_TRANSFERS = ("whole", "layerwise")
"""How the KV cache of a prompt goes from a prefill to a decode replica: all of it after the prompt, as vLLM's
NixlConnector does it, or layer by layer while the prompt is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPool:
    """Equal replicas of one role on one kind of chip."""

    role: str = BOTH
    """One of `ROLES`."""
    chip: str
    per_node: int = 0
    """Chips of a node; 0 where it is the chip's usual number."""
    power_limit_w: float = 0.0
    replicas: int
    weight: float = 1.0
    """Requests that a replica gets beside those of other pools, under the router `weighted`."""
    strategy: Strategy
    dtype: str
    kv_dtype: str = ""
    engine: EngineChoice

    @property
    def ranks(self) -> int:
        """Chips of one replica; see `Plan.ranks`."""
        return replace(self.strategy, cp=1).ranks

    @property
    def chips(self) -> int:
        return self.replicas * self.ranks


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
    pools: tuple[PlanPool, ...] = ()
    """Where there are several: chip, replicas, degrees, format and engine above are then those of the first."""
    kv_transfer: str = WHOLE
    """Between prefill and decode pools; one of `KV_TRANSFERS`."""

    @classmethod
    def of_pools(cls, pools: tuple[PlanPool, ...], **rest: Any) -> Plan:
        """A plan of one or several pools."""
        first = pools[0]
        return cls(
            chip=first.chip,
            per_node=first.per_node,
            power_limit_w=first.power_limit_w,
            replicas=first.replicas,
            strategy=first.strategy,
            dtype=first.dtype,
            kv_dtype=first.kv_dtype,
            engine=first.engine,
            pools=pools if len(pools) > 1 else (),
            **rest,
        )

    @property
    def each_pool(self) -> tuple[PlanPool, ...]:
        """All pools, also the only one of a plan that has no others."""
        return self.pools or (
            PlanPool(
                chip=self.chip,
                per_node=self.per_node,
                power_limit_w=self.power_limit_w,
                replicas=self.replicas,
                strategy=self.strategy,
                dtype=self.dtype,
                kv_dtype=self.kv_dtype,
                engine=self.engine,
            ),
        )

    def of_pool(self, pool: PlanPool) -> Plan:
        """One pool as a plan of its own, whose replicas nobody routes to yet."""
        return replace(
            self,
            chip=pool.chip,
            per_node=pool.per_node,
            power_limit_w=pool.power_limit_w,
            replicas=pool.replicas,
            router=ROUTERS[0],
            strategy=pool.strategy,
            dtype=pool.dtype,
            kv_dtype=pool.kv_dtype,
            engine=pool.engine,
            pools=(),
            kv_transfer=WHOLE,
        )

    @property
    def disaggregated(self) -> bool:
        """Whether prompts and answers are computed by pools of their own."""
        return any(pool.role != BOTH for pool in self.pools)

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
        return sum(pool.chips for pool in self.pools) if self.pools else self.replicas * self.ranks
