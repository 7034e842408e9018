"""Answers the search for plans: memory, bounds and simulated runs of engine replicas."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gnomon.api.energy import energy_j
from gnomon.api.plan_replicas import Replica, Replicas
from gnomon.search import Bounds, Candidate, Family, Level, Score
from gnomon.search.bounds import Demand, StepTimes, bounds
from gnomon.search.judge import Floats, Peaks, backlog_grows, lost_already, places_taken, same_schedule, statistic
from gnomon.search.shares import Shares, at_rate, first_part
from gnomon.sim.serving import ServingRun, simulate
from gnomon.spec import Goal, Requests, ServingLimits
from gnomon.spec.workload import METRICS, STATISTICS

FIRST_PART = 0.25
"""Share of a load after which a hopeless plan is given up."""
DOUBTFUL = 0.5
"""Share of what its bounds allow from which on a plan may be hopeless, and is first run on a part of the load."""
LEAST_PART = 100
"""Requests below which a first part is not worth its own run."""
SETTLING = 6.0
"""A run goes on for at least this many times what a request takes on its own."""
LONGEST = 20_000
"""Requests of one run that a settling replica may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A simulated plan in the terms of its report; times by statistic, rates over all replicas."""

    ttft_s: Mapping[str, float]
    tpot_s: Mapping[str, float]
    e2e_s: Mapping[str, float]
    output_tokens_per_s: float
    requests: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A score, and what it tells of plans with other limits."""

    score: Score
    limits: ServingLimits
    peaks: Peaks


class ServingEvaluator:
    """See `gnomon.search.Evaluator`. Everything that does not depend on the rate is worked out once."""

    def __init__(
        self, replicas: Replicas, shares: Shares, goals: tuple[Goal, ...], counts: Mapping[Level, int]
    ) -> None:
        """`counts` has the requests that a simulated replica gets."""
        self.replicas = replicas
        self._shares, self._goals, self._counts = shares, goals, counts
        self._demand = Demand.of(shares.whole)
        self._times: dict[Hashable, StepTimes] = {}
        self._bounds: dict[Family, Bounds] = {}
        self._dealt: dict[tuple[int, int], list[Requests]] = {}
        self._known: dict[Hashable, list[Known]] = {}

    def fits(self, family: Family) -> bool:
        return self.replicas.find(family) is not None

    def bounds(self, family: Family) -> Bounds:
        if family not in self._bounds:
            replica = self.replicas[family]
            times = self._times.setdefault(replica.cost_key, StepTimes(replica.cost, self._demand))
            idle_w = family.tp * replica.deployment.pool.chip.idle_w
            self._bounds[family] = bounds(times, replica.limits, self._goals, idle_w)
        return self._bounds[family]

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        replica = self.replicas[plan.family]
        shares = self._share(plan, rate_per_s, level)
        key = (replica.cost_key, plan.replicas, rate_per_s, level, len(shares[0]))
        alike = self._known.setdefault(key, [])
        for known in alike:
            if same_schedule(known.limits, replica.limits, known.peaks):
                return replace(known.score, plan=plan)
        score, peaks = self._run(plan, rate_per_s, shares, level)
        alike.append(Known(score=score, limits=replica.limits, peaks=peaks))
        return score

    def _run(self, plan: Candidate, rate_per_s: float, shares: list[Requests], level: Level) -> tuple[Score, Peaks]:
        replica = self.replicas[plan.family]
        first = [first_part(share, FIRST_PART) for share in shares]
        doubtful = plan.load_share(rate_per_s, self.bounds(plan.family)) > DOUBTFUL
        if level is not Level.SAMPLE and doubtful and all(len(part) >= LEAST_PART for part in first):
            runs, peaks = self._simulate(replica, first)
            if self._lost(runs, sum(map(len, shares))):
                return self._score(plan, rate_per_s, replica, runs, partial=True), peaks
        runs, peaks = self._simulate(replica, shares)
        return self._score(plan, rate_per_s, replica, runs), peaks

    def _share(self, plan: Candidate, rate_per_s: float, level: Level) -> list[Requests]:
        """Long enough that the replica settles, also where many requests are under way at once."""
        count, arriving = self._counts[level], rate_per_s / plan.replicas
        while count < min(LONGEST, SETTLING * self.bounds(plan.family).e2e_s * arriving):
            count *= 2
        key = (plan.replicas, count)
        if key not in self._dealt:
            self._dealt[key] = self._shares.of(*key)
        return [at_rate(share, rate_per_s) for share in self._dealt[key]]

    def _simulate(self, replica: Replica, shares: list[Requests]) -> tuple[list[ServingRun], Peaks]:
        replica.cost.most_tokens = 0
        runs = [simulate(share, replica.cost, replica.limits) for share in shares]
        sequences = max(run.peak_sequences for run in runs)
        longest = -(-self._shares.longest // replica.limits.block_tokens)
        peaks = Peaks(
            places=max(places_taken(run.peak_sequences, run.finish_s) for run in runs),
            step_tokens=max(sequences, replica.cost.most_tokens),
            kv_blocks=max(run.peak_kv_blocks for run in runs) + longest + sequences,
        )
        return runs, peaks

    def _lost(self, runs: list[ServingRun], total: int) -> bool:
        return any(lost_already(_pooled(runs, goal.metric), total, goal) for goal in self._goals)

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
            values_s={goal.name: by_metric[goal.metric][goal.statistic] for goal in self._goals},
            grows=not partial and any(_falls_behind(run) for run in runs),
            load_share=plan.load_share(rate_per_s, self.bounds(plan.family)),
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


def _falls_behind(run: ServingRun) -> bool:
    return backlog_grows(run.requests.arrival_s, run.first_token_s, run.finish_s)
