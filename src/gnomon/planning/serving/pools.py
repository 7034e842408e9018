"""A load on pools of replicas, simulated: prefill and decode apart, or unlike replicas behind one router."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.engines import Deployment, Engine
from gnomon.engines.base import Case
from gnomon.engines.techniques import RouterMaker
from gnomon.errors import InputError
from gnomon.planning.deploy import ReplicaSpec
from gnomon.planning.serving.arriving import of_clients
from gnomon.planning.serving.kv_transfer import KvTransfer, kv_transfer
from gnomon.planning.serving.results import ReplicaResult, ResultOptions
from gnomon.planning.steps.energy import power_use
from gnomon.search.bounds import Demand, KnownSteps
from gnomon.sim.serving import RunLog, ServingRun, saturation_rps
from gnomon.sim.serving.routers import router
from gnomon.sim.serving.system import ReplicaModel, ServingStage, SystemRun, simulate_system
from gnomon.spec import EngineChoice, NotModelled, PlanPool, Requests, ServingLimits, ServingLoad
from gnomon.spec.plan import BOTH, DECODE, LOAD_AWARE, PREFILL
from gnomon.spec.workload import RequestTrace

UNSENT = (
    NotModelled(
        option="KV blocks in transfer",
        why="a prefill replica gives them up at the end of a prompt, and a decode replica takes them when all came",
    ),
    NotModelled(
        option="contention of KV transfers",
        why="those to one decode replica follow one another; those of one prefill replica to several do not slow each "
        "other down",
    ),
)
"""What is not followed between prefill and decode pools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """Equal replicas of one role, as requested."""

    role: str
    replicas: int
    weight: float | None
    """As given; else a replica's own saturation rate counts."""
    replica: ReplicaSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsInput:
    """Pools and the load that they get."""

    pools: tuple[PoolSpec, ...]
    router: str
    kv_transfer: str
    load: ServingLoad
    trace: RequestTrace | None
    asked: Mapping[str, Any]
    concurrency: int | None = None
    options: ResultOptions = field(default_factory=ResultOptions)

    @property
    def techniques(self) -> tuple[str, ...]:
        """Of all pools."""
        return tuple(dict.fromkeys(name for pool in self.pools for name in pool.replica.techniques))

    @property
    def case(self) -> Case:
        first = self.pools[0].replica
        return Case(model=first.model, pool=first.pool)


@dataclass(frozen=True)
class BoundPool:
    """A pool under an engine, for one load."""

    spec: PoolSpec
    stream: Requests

    @cached_property
    def deployment(self) -> Deployment:
        return self.spec.replica.deploy()

    @property
    def engine(self) -> Engine:
        return self.spec.replica.engine

    @cached_property
    def cost(self) -> StepCost:
        return self.engine.step_cost(self.deployment, self.stream.longest)

    @cached_property
    def limits(self) -> ServingLimits:
        return self.engine.limits(self.deployment)

    @property
    def role(self) -> str:
        return self.spec.role

    @property
    def chips(self) -> int:
        return self.spec.replicas * self.deployment.strategy.ranks

    @property
    def usd_h(self) -> float:
        return self.chips * self.deployment.pool.chip.price_usd_h

    @cached_property
    def sustained(self) -> float:
        """Requests per second of one replica at most."""
        ones = np.ones(len(self.stream), np.int64)
        stream = replace(self.stream, output_tokens=ones) if self.role == PREFILL else self.stream
        return saturation_rps(stream, self.cost, self.limits, loaded=self.role == DECODE)

    @property
    def label(self) -> str:
        """`2 x (H100, TP 2, fp8)`."""
        deployment, strategy = self.deployment, self.deployment.strategy
        parts = [deployment.pool.chip.short, f"TP {strategy.tp}"]
        others = {"PP": strategy.pp, "DP": strategy.dp, "EP": strategy.ep}
        parts += [f"{name} {degree}" for name, degree in others.items() if degree > 1]
        return f"{self.spec.replicas} x ({', '.join([*parts, deployment.dtype])})"

    @property
    def planned(self) -> PlanPool:
        deployment, spec = self.deployment, self.spec.replica
        return PlanPool(
            role=self.role,
            chip=deployment.pool.chip.reference,
            per_node=deployment.pool.unusual_node_size,
            power_limit_w=deployment.pool.power_limit_w,
            replicas=self.spec.replicas,
            weight=self.spec.weight or 1.0,
            strategy=deployment.strategy,
            dtype=deployment.dtype,
            kv_dtype=deployment.kv_dtype,
            engine=EngineChoice(name=spec.engine.name, version=spec.engine.version, settings=dict(spec.settings)),
        )


Costs = Sequence[tuple[StepCost, ServingLimits]]
"""A step cost and its limits for each pool."""


@dataclass(frozen=True)
class PooledSystem:
    """All pools, joined by a router for each stage and by transfers between them."""

    pools: tuple[BoundPool, ...]
    router: str
    how: str
    """Of `KV_TRANSFERS`."""
    routes: RouterMaker | None = None
    """The router of a technique, in the place of the one that is named."""

    @cached_property
    def stages(self) -> tuple[tuple[BoundPool, ...], ...]:
        roles = [(BOTH,)] if self.pools[0].role == BOTH else [(PREFILL,), (DECODE,)]
        return tuple(tuple(pool for pool in self.pools if pool.role in each) for each in roles)

    @property
    def chips(self) -> int:
        return sum(pool.chips for pool in self.pools)

    @cached_property
    def weights(self) -> tuple[float, ...]:
        """Of a replica of each pool: as given, or how many requests it sustains beside the slowest of its role."""
        found = []
        for pool in self.pools:
            alike = [other for other in self.pools if other.role == pool.role]
            if pool.spec.weight is not None or len(alike) == 1 or self.router == "round-robin":
                found.append(pool.spec.weight or 1.0)
            else:
                found.append(pool.sustained / min(other.sustained for other in alike))
        return tuple(found)

    @cached_property
    def transfer(self) -> KvTransfer | None:
        """Between prefill and decode replicas; of several kinds, the slowest way."""
        if len(self.stages) == 1:
            return None
        ways = [self._way(one, other) for one in self.stages[0] for other in self.stages[1]]
        return max(ways, key=lambda way: way.full_s(int(self.pools[0].stream.input_tokens.max())))

    def _way(self, one: BoundPool, other: BoundPool) -> KvTransfer:
        steps = KnownSteps(one.cost, Demand.of(one.stream))

        def prompt_s(tokens: int) -> float:
            return steps.prompt_s(tokens, one.limits.max_step_tokens)

        return kv_transfer(one.engine, one.deployment, other.deployment, self.chips, self.how, prompt_s)

    def run(
        self,
        stream: Requests,
        clients: int | None = None,
        costs: Costs | None = None,
        logs: Mapping[int, Sequence[RunLog]] | None = None,
    ) -> SystemRun:
        """`logs` has one of each replica, by the place of its pool."""
        costs = costs or [(pool.cost, pool.limits) for pool in self.pools]
        models = {}
        for place, (pool, (cost, limits), weight) in enumerate(zip(self.pools, costs, self.weights, strict=True)):
            model = ReplicaModel(cost=cost, limits=limits, weight=weight)
            several = (model,) * pool.spec.replicas
            models[id(pool)] = tuple(replace(model, log=log) for log in logs[place]) if logs else several
        stages = [
            ServingStage(
                replicas=[replica for pool in stage for replica in models[id(pool)]],
                router=self.routes(number) if self.routes else router(self.router, number),
                transfer_s=self.transfer if number else None,
            )
            for number, stage in enumerate(self.stages)
        ]
        return simulate_system(stream, stages, clients=clients)

    def runs_of(self, run: SystemRun) -> Iterator[tuple[BoundPool, list[ServingRun]]]:
        """The runs of each pool's replicas that got a request."""
        for pools, runs, numbers in zip(self.stages, run.stages, run.numbers, strict=True):
            first = 0
            for pool in pools:
                last = first + pool.spec.replicas
                yield pool, [one for one, at in zip(runs, numbers, strict=True) if first <= at < last]
                first = last

    def replicas_of(self, run: SystemRun, logs: Mapping[int, Sequence[RunLog]]) -> Iterator[ReplicaResult]:
        """Each replica with its run, as `run` kept logs of it."""
        for stage, (pools, runs, numbers) in enumerate(zip(self.stages, run.stages, run.numbers, strict=True)):
            by_number = dict(zip(numbers, runs, strict=True))
            each = [(pool, log) for pool in pools for log in logs[self.pools.index(pool)]]
            for number, (pool, log) in enumerate(each):
                yield ReplicaResult(
                    deployment=pool.deployment,
                    first=stage == 0,
                    last=stage == len(self.stages) - 1,
                    run=by_number.get(number),
                    log=log,
                )

    @cached_property
    def sustained(self) -> float:
        """Requests per second that all pools together sustain."""
        return min(self._stage_sustains(stage) for stage in self.stages)

    def _stage_sustains(self, stage: tuple[BoundPool, ...]) -> float:
        """Routers that look at the replicas use all of them; others send a share to each, and the first that is full
        decides."""
        each = [(pool, weight) for pool, weight in zip(self.pools, self.weights, strict=True) if pool in stage]
        if self.routes or self.router in LOAD_AWARE:
            return sum(pool.spec.replicas * pool.sustained for pool, _ in each)
        weighted = self.router == "weighted"
        total = sum(pool.spec.replicas * (weight if weighted else 1.0) for pool, weight in each)
        return min(pool.sustained * total / (weight if weighted else 1.0) for pool, weight in each)


def pool_energy_j(pool: BoundPool, runs: list[ServingRun], makespan_s: float) -> float:
    """Joules of all chips of a pool, of replicas without requests too, until the last request has ended."""
    uses = [power_use(pool.deployment, run) for run in runs]
    waiting_w = pool.deployment.strategy.ranks * pool.deployment.profile.power["active_w"]
    waits_s = pool.spec.replicas * makespan_s - sum(use.busy_s for use in uses)
    return sum(use.busy_j for use in uses) + max(waits_s, 0.0) * waiting_w


def bound_pools(given: PoolsInput, stream: Requests) -> PooledSystem:
    pools = tuple(BoundPool(spec, stream) for spec in given.pools)
    formats = {pool.deployment.kv_dtype for pool in pools}
    if pools[0].role != BOTH and len(formats) > 1:
        hint = "Give --kv-dtype."
        raise InputError(f"pools keep the KV cache in {' and '.join(sorted(formats))}", where="--pool", hint=hint)
    chosen = of_clients(given.techniques)
    routes = chosen.router(partial(router, given.router), given.case) if chosen.routes else None
    return PooledSystem(pools, given.router, given.kv_transfer, routes)


def drawn_costs(system: PooledSystem, draws: int, longest: int) -> list[Costs]:
    """The costs of all pools by the central estimate first, then under each of so many draws that they share."""
    each = [list(pool.engine.drawn(pool.deployment, draws, longest)) for pool in system.pools]
    return [list(costs) for costs in zip(*each, strict=True)]
