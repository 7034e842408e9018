"""Answers the search for plans: memory, bounds and simulated runs of engine replicas."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.api.deploy import deploy
from gnomon.api.energy import energy_j
from gnomon.cost.step import Curve, StepCost
from gnomon.engines.base import Deployment, Engine
from gnomon.errors import DoesNotFitError
from gnomon.search import Bounds, Candidate, Family, Level, Score
from gnomon.search.bounds import Demand, StepTimes, bounds
from gnomon.search.judge import Floats, Peaks, backlog_grows, lost_already, same_schedule, statistic
from gnomon.search.shares import Shares, at_rate, first_part
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec import EngineChoice, Goal, Model, Pool, Requests, ServingLimits, Strategy
from gnomon.spec.workload import METRICS, STATISTICS

FIRST_PART = 0.25
"""Share of a load after which a hopeless plan is given up."""
LEAST_PART = 100
"""Requests below which a first part is not worth its own run."""
SETTLING = 6.0
"""A run goes on for at least this many times what a request takes on its own."""
LONGEST = 20_000
"""Requests of one run that a settling replica may ask for."""
CONTEXT = "max_model_len"
CONTEXT_STEP = 1024
"""A context that must shrink to fit the cache shrinks to a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One engine replica of a family, ready to simulate."""

    engine: Engine
    deployment: Deployment
    limits: ServingLimits
    settings: Mapping[str, Any]
    """What differs from the engine's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A simulated plan in the terms of its report; times by statistic, rates over all replicas."""

    ttft_s: Mapping[str, float]
    tpot_s: Mapping[str, float]
    e2e_s: Mapping[str, float]
    output_tokens_per_s: float
    requests: int
    preemptions: int


class WatchedCost:
    """A step cost that works its decode curves out once for all runs, and notes the largest step with a prompt."""

    def __init__(self, cost: StepCost) -> None:
        self._cost = cost
        self._curves: dict[int, Curve] = {}
        self.most_tokens = 0

    def decode_curve(self, sequences: int) -> Curve:
        curve = self._curves.get(sequences)
        if curve is None:
            curve = self._curves[sequences] = self._cost.decode_curve(sequences)
        return curve

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        tokens = decodes
        for new, _ in chunks:
            tokens += new
        if tokens > self.most_tokens:
            self.most_tokens = tokens
        return self._cost.mixed(decodes, decode_context, chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A score, and what it tells of plans with other limits."""

    score: Score
    limits: ServingLimits
    peaks: Peaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all plans share."""

    model: Model
    pools: Mapping[str, Pool]
    engine: EngineChoice
    kv_dtype: str
    goals: tuple[Goal, ...]
    counts: Mapping[Level, int]
    """Requests a simulated replica gets, by level."""


class ServingEvaluator:
    """See `gnomon.search.Evaluator`. Everything that does not depend on the rate is worked out once."""

    def __init__(self, setup: Setup, shares: Shares) -> None:
        self._setup, self._shares = setup, shares
        self._demand = Demand.of(shares.whole)
        whole = shares.whole
        self._longest = int((whole.input_tokens + whole.output_tokens).max())
        self._replicas: dict[Family, Replica | None] = {}
        self._bounds: dict[Family, Bounds] = {}
        self._costs: dict[Hashable, WatchedCost] = {}
        self._times: dict[Hashable, StepTimes] = {}
        self._dealt: dict[tuple[int, int], list[Requests]] = {}
        self._known: dict[Hashable, list[Known]] = {}

    def fits(self, family: Family) -> bool:
        if family not in self._replicas:
            self._replicas[family] = self._made(family)
        return self._replicas[family] is not None

    def replica(self, family: Family) -> Replica:
        assert self.fits(family)
        found = self._replicas[family]
        assert found is not None
        return found

    def bounds(self, family: Family) -> Bounds:
        if family not in self._bounds:
            replica = self.replica(family)
            key = self._cost_key(replica)
            if key not in self._times:
                self._times[key] = StepTimes(self._cost(replica), self._demand)
            idle_w = family.tp * self._setup.pools[family.chip].chip.idle_w
            self._bounds[family] = bounds(self._times[key], replica.limits, self._setup.goals, idle_w)
        return self._bounds[family]

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        replica = self.replica(plan.family)
        shares = self._share(plan, rate_per_s, level)
        alike = self._known.setdefault((self._cost_key(replica), plan.replicas, rate_per_s, level, len(shares[0])), [])
        for known in alike:
            if same_schedule(known.limits, replica.limits, known.peaks):
                return replace(known.score, plan=plan)
        score, peaks = self._run(plan, rate_per_s, shares, level is Level.SEARCH)
        alike.append(Known(score=score, limits=replica.limits, peaks=peaks))
        return score

    def _run(
        self, plan: Candidate, rate_per_s: float, shares: list[Requests], may_give_up: bool
    ) -> tuple[Score, Peaks]:
        replica = self.replica(plan.family)
        first = [first_part(share, FIRST_PART) for share in shares]
        if may_give_up and all(len(part) >= LEAST_PART for part in first):
            runs, peaks = self._simulate(replica, first)
            if self._lost(runs, sum(map(len, shares))):
                return self._score(plan, rate_per_s, replica, runs, partial=True), peaks
        runs, peaks = self._simulate(replica, shares)
        return self._score(plan, rate_per_s, replica, runs), peaks

    def _made(self, family: Family) -> Replica | None:
        """A replica that holds the model and the longest request, its context cut to what its cache holds."""
        settings = dict(self._setup.engine.settings) | dict(family.settings)
        engine, deployment = self._deploy(family, settings)
        memory = engine.memory(deployment)
        if memory.kv_blocks <= 0:
            return None
        held = int(memory.parts["kv"] / memory.kv_bytes_per_token) // CONTEXT_STEP * CONTEXT_STEP
        if CONTEXT not in settings and self._longest <= held < deployment.settings.get(CONTEXT, 0):
            settings[CONTEXT] = held
            engine, deployment = self._deploy(family, settings)
        try:
            limits = engine.limits(deployment)
        except DoesNotFitError:
            return None
        if self._longest > min(limits.max_context, limits.kv_blocks * limits.block_tokens):
            return None
        return Replica(engine=engine, deployment=deployment, limits=limits, settings=settings)

    def _deploy(self, family: Family, settings: Mapping[str, Any]) -> tuple[Engine, Deployment]:
        pool = self._setup.pools[family.chip]
        return deploy(
            self._setup.model,
            Pool(chip=pool.chip, count=family.tp, per_node=pool.per_node),
            strategy=Strategy(tp=family.tp),
            dtype=family.dtype,
            kv_dtype=self._setup.kv_dtype,
            engine=self._setup.engine.label,
            settings=settings,
        )

    def _cost_key(self, replica: Replica) -> Hashable:
        """An engine may say what its step cost depends on; else it depends on every setting."""
        deployment = replica.deployment
        place = (deployment.pool.chip.name, deployment.strategy, deployment.dtype, deployment.kv_dtype)
        own: Callable[[Deployment], Hashable] | None = getattr(replica.engine, "cost_key", None)
        if own is not None:
            return (place, own(deployment))
        return (place, tuple(sorted((name, repr(value)) for name, value in deployment.settings.items())))

    def _cost(self, replica: Replica) -> WatchedCost:
        key = self._cost_key(replica)
        if key not in self._costs:
            self._costs[key] = WatchedCost(replica.engine.step_cost(replica.deployment))
        return self._costs[key]

    def _share(self, plan: Candidate, rate_per_s: float, level: Level) -> list[Requests]:
        """Long enough that the replica settles, also where many requests are under way at once."""
        count, arriving = self._setup.counts[level], rate_per_s / plan.replicas
        while count < min(LONGEST, SETTLING * self.bounds(plan.family).e2e_s * arriving):
            count *= 2
        key = (plan.replicas, count)
        if key not in self._dealt:
            self._dealt[key] = self._shares.of(*key)
        return [at_rate(share, rate_per_s) for share in self._dealt[key]]

    def _simulate(self, replica: Replica, shares: list[Requests]) -> tuple[list[ServingRun], Peaks]:
        cost = self._cost(replica)
        cost.most_tokens = 0
        runs = [simulate(share, cost, replica.limits) for share in shares]
        sequences = max(run.peak_sequences for run in runs)
        peaks = Peaks(
            sequences=sequences,
            step_tokens=max(sequences, cost.most_tokens),
            kv_blocks=max(run.peak_kv_blocks for run in runs),
            longest=self._longest,
        )
        return runs, peaks

    def _lost(self, runs: list[ServingRun], total: int) -> bool:
        return any(lost_already(_pooled(runs, goal.metric), total, goal) for goal in self._setup.goals)

    def _score(
        self, plan: Candidate, rate_per_s: float, replica: Replica, runs: list[ServingRun], partial: bool = False
    ) -> Score:
        figures = _figures(runs, plan.replicas)
        tokens = sum(int(run.requests.output_tokens.sum()) for run in runs)
        joules = sum(energy_j(replica.engine, replica.deployment, run) for run in runs)
        by_metric = {metric: getattr(figures, f"{metric}_s") for metric in METRICS}
        return Score(
            plan=plan,
            rate_per_s=rate_per_s,
            values_s={goal.name: by_metric[goal.metric][goal.statistic] for goal in self._setup.goals},
            grows=not partial and any(backlog_grows(run.requests.arrival_s, run.finish_s) for run in runs),
            e2e_s=figures.e2e_s["mean"],
            wh_per_mtok=joules / 3600 / tokens * 1e6,
            partial=partial,
            detail=figures,
        )


def _figures(runs: list[ServingRun], replicas: int) -> Figures:
    times = {metric: _statistics(_pooled(runs, metric)) for metric in METRICS}
    return Figures(
        ttft_s=times["ttft"],
        tpot_s=times["tpot"],
        e2e_s=times["e2e"],
        output_tokens_per_s=replicas * float(np.mean([run.output_tokens_per_s for run in runs])),
        requests=sum(len(run.requests) for run in runs),
        preemptions=sum(run.preemptions for run in runs),
    )


def _pooled(runs: list[ServingRun], metric: str) -> Floats:
    return np.concatenate([getattr(run, f"{metric}_s") for run in runs])


def _statistics(values: Floats) -> dict[str, float]:
    return {name: statistic(values, name) for name in STATISTICS}
