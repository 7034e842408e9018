"""Plans of several kinds of chip behind one router that goes by weights.

Every replica gets a share of the requests in proportion to what it holds within the goals by itself. What a replica
holds is the highest rate of its thinned stream, found as for the highest-throughput plan; then the cheapest mixture
that carries the load is exact (`search/mixture.py`). Goals are about all requests, whichever chip they are served by,
so that a mixture may hold more than its replicas do by themselves: the same with one replica less of each kind is run
before it is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gnomon.errors import InputError, NoPlanError
from gnomon.planning.serving.evaluator import ServingEvaluator, ServingFigures, statistics
from gnomon.planning.serving.seen import Seen
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Bounds, Candidate, Level, PlanFamily, Score
from gnomon.search.best_first import best_rate
from gnomon.search.fates import missed_by_bound
from gnomon.search.judge import SURE
from gnomon.search.mixture import Mixture, ReplicaKind, cheapest
from gnomon.search.objectives import SearchJob
from gnomon.search.overall import mixed_mean, mixed_quantile, overall_clearance
from gnomon.search.rate import FULL_TOLERANCE
from gnomon.spec.plan import ROUTERS
from gnomon.spec.workload import METRICS, QUANTILES, Floats
from gnomon.units import format_rate

ROUTED = (ROUTERS[0], "weighted")
"""Routers that a mixture is planned for: by weights."""
OBJECTIVES = ("cost", "throughput")
TRIES = 8
"""How often a mixture is made again without what the full load did not hold."""
Place = tuple[str, int, int, int, int]
"""A chip, and the degrees."""
LEAST_RATE = 1e-12
MOST_SHORT = (1 + FULL_TOLERANCE) ** 2 - 1
"""Share by which a kind may hold more than it was found to: of a rate that a sample allows, and of one that the full
load does."""


@dataclass(frozen=True)
class ThinnedEvaluator:
    """One replica under its share of a load: `rate_per_s` is that of the replica alone."""

    evaluator: ServingEvaluator
    load_per_s: float
    """The whole load's rate; 0 where it has none."""

    def fits(self, family: PlanFamily) -> bool:
        return self.evaluator.fits(family)

    def bounds(self, family: PlanFamily) -> Bounds:
        return self.evaluator.bounds(family)

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        if not self.load_per_s:
            return self.evaluator.evaluate(plan, rate_per_s, level)
        ways: Any = max(1.0, self.load_per_s / rate_per_s)
        score = self.evaluator.evaluate(replace(plan, replicas=ways), self.load_per_s, level)
        all_of: ServingFigures = score.detail
        own = replace(all_of, power_w=all_of.power_w / ways, output_tokens_per_s=all_of.output_tokens_per_s / ways)
        return replace(score, plan=plan, rate_per_s=rate_per_s, detail=own)

    def seen(self, score: Score) -> Seen:
        """The times that a replica was judged by."""
        if not self.load_per_s:
            return self.evaluator.seen(score)
        ways: Any = max(1.0, self.load_per_s / score.rate_per_s)
        return self.evaluator.seen(replace(score, plan=replace(score.plan, replicas=ways), rate_per_s=self.load_per_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPool:
    """Equal replicas of a mixture."""

    plan: Candidate
    weight: float
    """The rate that one of them holds within the goals."""
    score: Score
    """One replica under its share of the load."""


@dataclass(frozen=True, kw_only=True)
class MixedPlan:
    """A mixture and its figures under the load."""

    pools: tuple[MixedPool, ...]
    rate_per_s: float
    figures: ServingFigures

    @property
    def usd_h(self) -> float:
        return sum(pool.plan.usd_h for pool in self.pools)

    @property
    def most_per_s(self) -> float:
        """The rate that all of them hold within the goals, as far as it is known: by themselves, or together."""
        return max(self.rate_per_s, sum(pool.plan.replicas * pool.weight for pool in self.pools))


@dataclass
class MixedSearch:
    """What each kind of replica holds, worked out when a mixture asks for it."""

    task: PlanTask
    families: list[PlanFamily]
    evaluator: ServingEvaluator
    known: dict[ReplicaKind, float] = field(default_factory=dict)
    chosen: dict[ReplicaKind, PlanFamily] = field(default_factory=dict)
    """The best family of each kind that was evaluated."""
    tried: set[PlanFamily] = field(default_factory=set)
    lowered: bool = False
    """Whether a kind held less on the full load than it was found to."""

    @cached_property
    def fitting(self) -> list[PlanFamily]:
        return [family for family in self.families if self.evaluator.fits(family)]

    @cached_property
    def thinned(self) -> ThinnedEvaluator:
        return ThinnedEvaluator(self.evaluator, self.task.job.rate_per_s)

    @cached_property
    def groups(self) -> dict[Place, list[PlanFamily]]:
        """Families of equal price, that differ in number format and settings: chip and degrees."""
        found: dict[Place, list[PlanFamily]] = {}
        for family in self.fitting:
            if missed_by_bound(self.thinned.bounds(family), self.task.goals) is None:
                found.setdefault((family.chip, family.tp, family.ep, family.dp, family.pp), []).append(family)
        return found

    @cached_property
    def kinds(self) -> list[ReplicaKind]:
        return [
            ReplicaKind(
                chip=place[0],
                name=place,
                usd_h=families[0].usd_h,
                most=families[0].most,
                bound=min(
                    self.task.job.rate_per_s or math.inf,
                    max(self.thinned.bounds(family).rate_per_s for family in families),
                ),
            )
            for place, families in self.groups.items()
        ]

    def carries(self, kind: ReplicaKind) -> float:
        """The highest rate that one replica of a kind holds within the goals, in its best settings."""
        families = [replace(family, most=1) for family in self.groups[kind.name]]  # type: ignore[index]
        job = SearchJob(goals=self.task.goals, rate_per_s=0.0, output_tokens=self.task.job.output_tokens)
        best, ran = best_rate(families, self.thinned, job)
        self.tried |= ran
        if best is None:
            return LEAST_RATE
        own = next(family for family in self.groups[kind.name] if family.order == best.plan.family.order)  # type: ignore[index]
        self.chosen[kind] = own
        return best.rate_per_s

    def holds(self, kind: ReplicaKind, amount: float) -> bool:
        """Whether one replica of a kind holds a rate within the goals, in some settings, which are then its own."""
        for family in self.groups[kind.name]:  # type: ignore[index]
            if self.thinned.bounds(family).rate_per_s < amount:
                continue
            self.tried.add(family)
            plan = Candidate(family=family, replicas=1)
            if not self.thinned.evaluate(plan, amount, Level.VERDICT).meets(self.task.goals):
                continue
            # Near to what it was found to hold, the verdict is worth longer runs.
            level = Level.SURE if kind in self.known else Level.FULL
            if self.thinned.evaluate(plan, amount, level).surely_meets(self.task.goals):
                self.chosen[kind] = family
                return True
        return False

    def mixture(self) -> Mixture | None:
        if self.task.objective.name != "throughput":
            tolerance = 0.0 if self.lowered else MOST_SHORT
            return cheapest(self.kinds, self.task.job.rate_per_s, self, self.known, tolerance)
        best: dict[str, tuple[float, ReplicaKind, int]] = {}
        for kind in sorted(self.kinds, key=lambda kind: -kind.most * kind.bound):
            if kind.chip in best and kind.most * kind.bound <= best[kind.chip][0]:
                continue
            held = self.known.setdefault(kind, self.carries(kind))
            best[kind.chip] = max(best.get(kind.chip, (0.0, kind, 0)), (kind.most * held, kind, kind.most))
        found = tuple((kind, count) for held, kind, count in best.values() if held > LEAST_RATE * count)
        return found if sum(self.known[kind] * count for kind, count in found) >= self.task.job.rate_per_s else None

    def judged(self, found: Mixture) -> MixedPlan | None:
        """A mixture on the full load; None where a kind does not hold its share there, which it then holds less of."""
        total = sum(self.known[kind] * count for kind, count in found)
        rate = self.task.job.rate_per_s if self.task.objective.name != "throughput" else total
        pools = []
        for kind, count in found:
            family, share = self.chosen[kind], rate * self.known[kind] / total
            level = Level.SURE if self.task.objective.name != "throughput" else Level.FULL
            score = self.thinned.evaluate(Candidate(family=family, replicas=1), share, level)
            if not score.surely_meets(self.task.goals):
                self.known[kind] *= 1 - FULL_TOLERANCE
                self.lowered = True
                return None
            plan = Candidate(family=family, replicas=count)
            pools.append(MixedPool(plan=plan, weight=self.known[kind], score=score))
        return self._plan(pools, rate)

    def _plan(self, pools: list[MixedPool], rate_per_s: float) -> MixedPlan:
        seen = [self.thinned.seen(pool.score) for pool in pools]
        return MixedPlan(pools=tuple(pools), rate_per_s=rate_per_s, figures=mixed_figures(pools, seen))

    def leaner(self, plan: MixedPlan) -> MixedPlan:
        """A mixture without the replicas that its goals do not need: as long as they are surely met over all requests,
        one less of a kind, the dearest first."""
        while True:
            fewer = (self._fewer(plan, pool) for pool in sorted(plan.pools, key=lambda pool: -pool.plan.family.usd_h))
            found = next((each for each in fewer if each is not None), None)
            if found is None:
                return plan
            plan = found

    def _fewer(self, plan: MixedPlan, spared: MixedPool) -> MixedPlan | None:
        """A mixture with one replica less of a kind, all others with so much more to do; None where that does not
        surely meet the goals."""
        counts = [(pool, pool.plan.replicas - (pool is spared)) for pool in plan.pools]
        left = [(pool, count) for pool, count in counts if count]
        if not left:
            return None
        total = sum(pool.weight * count for pool, count in left)
        for level in (Level.FULL, Level.SURE):  # a verdict that is not clear is worth longer runs
            pools = []
            for pool, count in left:
                alone, share = replace(pool.plan, replicas=1), plan.rate_per_s * pool.weight / total
                if share > self.thinned.bounds(alone.family).rate_per_s:
                    return None
                score = self.thinned.evaluate(alone, share, level)
                if score.grows or not score.settled:
                    return None
                pools.append(replace(pool, plan=replace(alone, replicas=count), score=score))
            sure = self._clearance(pools)
            if sure >= SURE:
                return self._plan(pools, plan.rate_per_s)
            if sure <= -SURE:
                return None
        return None

    def _clearance(self, pools: list[MixedPool]) -> float:
        """Standard errors by which the goals are met over all requests, that of the goal with the least room."""
        seen = [(self.thinned.seen(pool.score), part) for pool, part in zip(pools, shares_of(pools), strict=True)]
        each = (
            overall_clearance([one.kind(goal.metric, part) for one, part in seen], goal) for goal in self.task.goals
        )
        return min(each, default=math.inf)

    @property
    def considered(self) -> int:
        """Of every chip no replicas, or any number of one kind."""
        return _count(self.families)

    @property
    def fit(self) -> int:
        return _count(self.fitting)


def may_be_mixed(task: PlanTask) -> bool:
    """Whether mixtures are planned for the task's objective and router."""
    return task.objective.name in OBJECTIVES and task.arrivals.router in ROUTED and not task.arrivals.routes


def search_mixed(search: MixedSearch) -> MixedPlan:
    """The cheapest mixture, or the one with the highest rate on all chips; raises where none carries the load."""
    found = carrying_mixture(search)
    return found if search.task.objective.name == "throughput" else search.leaner(found)


def carrying_mixture(search: MixedSearch) -> MixedPlan:
    """The best mixture whose kinds of replicas carry the load by themselves."""
    task = search.task
    if task.objective.name not in OBJECTIVES:
        hint = "Use cost or throughput, or --pools aggregated."
        raise InputError("mixtures are planned by cost or throughput", where="--objective", hint=hint)
    if task.arrivals.router not in ROUTED or task.arrivals.routes:
        hint = "Leave it out, or use --pools aggregated."
        raise InputError("a mixture goes by the router weighted", where="--router", hint=hint)
    for _ in range(TRIES):
        found = search.mixture()
        if found is None:
            break
        plan = search.judged(found)
        if plan is not None:
            return plan
    held = sum(max(kind.most * search.known.get(kind, kind.bound) for kind in search.kinds if kind.chip == chip)
               for chip in dict.fromkeys(kind.chip for kind in search.kinds))  # fmt: skip
    raise NoPlanError(
        f"no mixture of {task.chips} meets the goals at {format_rate(task.job.rate_per_s)}",
        hint=f"All chips together hold at most {format_rate(held)} within them." if held else "",
        nearest={},
    )


def shares_of(pools: Sequence[MixedPool]) -> Floats:
    """What part of the requests each kind gets."""
    each = np.array([pool.plan.replicas * pool.score.rate_per_s for pool in pools])
    found: Floats = each / each.sum()
    return found


def mixed_figures(pools: Sequence[MixedPool], seen: Sequence[Seen]) -> ServingFigures:
    """Of all requests: the times of each kind of chip in proportion to its requests."""
    details: list[ServingFigures] = [pool.score.detail for pool in pools]
    share = shares_of(pools)
    times = {metric: _mixed_times([one.times_s[metric] for one in seen], share) for metric in METRICS}
    return ServingFigures(
        ttft_s=times["ttft"],
        tpot_s=times["tpot"],
        e2e_s=times["e2e"],
        output_tokens_per_s=sum(pool.plan.replicas * pool.score.detail.output_tokens_per_s for pool in pools),
        power_w=sum(pool.plan.replicas * pool.score.detail.power_w for pool in pools),
        requests=sum(one.requests for one in details),
        preemptions=sum(one.preemptions for one in details),
        kv_share=max(one.kv_share for one in details),
        clock=min(one.clock for one in details),
    )


def _mixed_times(each: list[Floats], share: Floats) -> dict[str, float]:
    """Mean and quantiles over kinds with their shares of the requests; of a figure that nobody has, not a number."""
    known = [values[~np.isnan(values)] for values in each]
    if not all(values.size for values in known):
        return statistics(np.concatenate(known))
    quantiles = {name: mixed_quantile(known, share, level) for name, level in QUANTILES.items()}
    return {"mean": mixed_mean(known, share), **quantiles}


def _count(families: list[PlanFamily]) -> int:
    chips = dict.fromkeys(family.chip for family in families)
    return math.prod(1 + sum(family.most for family in families if family.chip == chip) for chip in chips) - 1
