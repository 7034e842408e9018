"""Answers the search for plans: memory, bounds and simulated runs of engine replicas."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from gnomon.cost.step import StepCost
from gnomon.planning.serving.arriving import router_of
from gnomon.planning.serving.replicas import Replica, Replicas
from gnomon.planning.serving.seen import Seen, steady_times
from gnomon.planning.steps.energy import power_use
from gnomon.search import Bounds, Candidate, Level, PlanFamily, Score
from gnomon.search.arrivals import Arrivals, Routed
from gnomon.search.bounds import Demand, KnownSteps, bounds, most_requests_per_s
from gnomon.search.judge import (
    SETTLED,
    WARM_UP,
    Peaks,
    backlog_grows,
    is_settled,
    lifetime_s,
    lost_already,
    places_taken,
    same_schedule,
    statistic,
)
from gnomon.sim.serving import Curves, ServingRun, simulate
from gnomon.sim.serving.held import HeldRun, simulate_on
from gnomon.sim.serving.system import ReplicaModel, ServingStage, simulate_system
from gnomon.spec import Goal, ServingLimits
from gnomon.spec.workload import METRICS, STATISTICS, Floats

FIRST_PART = 0.25
"""Share of a load after which a hopeless plan is given up."""
HIGH_LOAD = 0.8
"""Share of what its bounds allow from which on a plan is hopeless so often (two of five; below, one of four) that a run
of a part of the sample pays."""
VERDICT_PARTS = (0.375, 0.625)
"""The same where only the verdict counts; a run of a larger part goes on from that of a smaller one."""
LEAST_PART = 100
"""Requests below which a first part is not worth its own run."""
MARGIN = 1.2
"""A run that proved too short to settle is made so much longer than its own lifetimes would need."""
MOST_REQUESTS = 80_000
"""Requests of one run at most; a plan that has not settled by then is not called good."""
GROWN = 2_000
"""Requests of an unsettled run before its queue is believed to grow: a large batch that still fills looks the same."""
FULL = 0.9
"""Share of its limits at which a batch counts as full."""
FILLED = 20_000
"""Requests of one replica after which its batch has filled. The nearer a load is to what a replica sustains, the longer
that takes; until then more requests unfinished may be a batch that serves more per second as it grows."""
ANY_BLOCKS = 1 << 40
"""Where prompts share beginnings, every block more keeps more of them: no run goes the same way with fewer."""
MOST_HELD = 256
"""Plans whose runs are kept to go on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFigures:
    """A simulated plan: latencies of the steady part by statistic, rates and watts over all replicas, counts over the
    full run."""

    ttft_s: Mapping[str, float]
    tpot_s: Mapping[str, float]
    e2e_s: Mapping[str, float]
    output_tokens_per_s: float
    power_w: float
    requests: int
    preemptions: int
    kv_share: float = 0.0
    """Of a replica's KV cache blocks, the most that were in use."""
    clock: float = 1.0
    """The clock under the power limit as a share of the highest, on average over the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A score, and what it tells of plans with other limits."""

    score: Score
    limits: ServingLimits
    peaks: Peaks


class ServingEvaluator:
    """See `gnomon.search.Evaluator`. Everything that does not depend on the rate is worked out once."""

    def __init__(
        self, replicas: Replicas, arrivals: Arrivals, goals: tuple[Goal, ...], counts: Mapping[Level, int]
    ) -> None:
        """`counts` has the requests that a simulated replica gets at least."""
        self.replicas = replicas
        self._arrivals, self._goals, self._counts = arrivals, goals, counts
        self._demand = Demand.of(arrivals.whole)
        self._output_tokens = float(arrivals.whole.output_tokens.mean())
        self._times: dict[Hashable, KnownSteps] = {}
        self._bounds: dict[PlanFamily, Bounds] = {}
        self._routed: dict[tuple[int, int, float], Routed] = {}
        self._known: dict[Hashable, list[Known]] = {}
        self._held: dict[Hashable, tuple[Routed, list[HeldRun]]] = {}
        self.longest_run = 0
        """Requests of the longest run so far."""

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return self._arrivals.longest

    def fits(self, family: PlanFamily) -> bool:
        return self.replicas.find(family) is not None

    def bounds(self, family: PlanFamily) -> Bounds:
        if family not in self._bounds:
            replica = self.replicas[family]
            times = self._times.setdefault(replica.cost_key, KnownSteps(replica.cost, self._demand))
            idle_w = family.chips * replica.deployment.pool.chip.idle_w
            self._bounds[family] = bounds(times, replica.limits, self._goals, idle_w)
        return self._bounds[family]

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        replica = self.replicas[plan.family]
        place = (replica.cost_key, plan.replicas, rate_per_s)
        alike = self._known.setdefault((place, level), [])
        whole = self._known.setdefault((place, Level.SEARCH), []) if level is Level.VERDICT else alike
        for known in alike if whole is alike else [*alike, *whole]:
            if same_schedule(known.limits, replica.limits, known.peaks):
                return replace(known.score, plan=plan)
        score, peaks = self._judged(plan, rate_per_s, level)
        (alike if score.partial else whole).append(Known(score=score, limits=replica.limits, peaks=peaks))
        return score

    def seen(self, score: Score) -> Seen:
        """The times of the requests that a plan whose replicas are run one by one was judged by."""
        key = (score.plan, score.rate_per_s)
        routed, held = self._held.get(key, (None, []))
        if routed is not None and routed.requests == score.detail.requests:
            return Seen.of([each.run for each in held], routed)
        routed = self._routed_to(*key, score.detail.requests, self.bounds(score.plan.family).e2e_s)
        return Seen.of(self._simulate(*key, routed)[0], routed)

    def with_goals(self, goals: tuple[Goal, ...]) -> ServingEvaluator:
        """The same plans under other goals: their runs are the same, their bounds and scores are not."""
        other = copy(self)
        other._goals, other._bounds, other._known = goals, {}, {}
        return other

    def drawn(self, plan: Candidate, draws: int) -> list[tuple[Any, ...]]:
        """What `part` and `most_per_s` take to run a plan by: the central estimate first, then so many draws."""
        return self._drawn(plan.family, draws)

    def _drawn(self, family: PlanFamily, draws: int) -> list[tuple[Any, ...]]:
        """Step costs of one replica with its limits, each with room for the decode curves that its runs share."""
        replica = self.replicas[family]
        drawn = replica.engine.drawn(replica.deployment, draws, self.longest)
        return [(cost, limits, {}) for cost, limits in drawn]

    def part(self, plan: Candidate, rate_per_s: float, count: int, *costs: Any) -> tuple[ServingFigures, Peaks]:
        """A plan on a part of its load by another step cost and other limits than its own."""
        cost, limits, curves = costs
        routed = self._routed_to(plan, rate_per_s, count, self.bounds(plan.family).e2e_s)
        runs = self._runs(plan, routed, cost, limits, curves)
        return self._figures(plan, rate_per_s, runs, steady_times(runs)), self._peaks(runs, limits)

    def most_per_s(self, plan: Candidate, *costs: Any) -> float:
        """The bound on the rate of one replica by such a cost."""
        cost, limits, _ = costs
        return most_requests_per_s(KnownSteps(cost, self._demand), limits)

    def alike(self, one: Candidate, other: Candidate, peaks: Peaks) -> bool:
        """Whether runs of one plan that asked for no more than `peaks` are those of the other too."""
        ours, theirs = self.replicas[one.family], self.replicas[other.family]
        shared = (ours.cost_key, one.replicas) == (theirs.cost_key, other.replicas)
        return shared and same_schedule(ours.limits, theirs.limits, peaks)

    def _judged(self, plan: Candidate, rate_per_s: float, level: Level) -> tuple[Score, Peaks]:
        """Runs of growing length, until the plan is lost, or has settled and its verdict is clear."""
        count, life_s = self._counts[level], self.bounds(plan.family).e2e_s
        routed = self._routed_to(plan, rate_per_s, count, life_s)
        while True:
            score, peaks = self._run(plan, rate_per_s, routed, level)
            grows = score.grows and (score.settled or routed.requests >= GROWN)
            if score.partial or grows or routed.requests >= MOST_REQUESTS:
                return score, peaks
            if not score.settled:
                life_s = MARGIN * max(life_s, score.detail.e2e_s["p90"])
                if self._routed_to(plan, rate_per_s, count, life_s).requests <= routed.requests:
                    count = 2 * routed.requests
            elif level is Level.SURE and score.unclear(self._goals):
                count = 2 * routed.requests
            else:
                return score, peaks
            longer = self._routed_to(plan, rate_per_s, count, life_s)
            if longer.requests <= routed.requests:  # a trace that is run whole has no more
                return score, peaks
            routed = longer

    def _routed_to(self, plan: Candidate, rate_per_s: float, count: int, life_s: float) -> Routed:
        """Requests of one replica, or of those that are simulated together, for as long as the plan needs to settle if
        a request takes `life_s`."""
        span = min(SETTLED * life_s * rate_per_s, MOST_REQUESTS * self._arrivals.ways(plan.replicas))
        key = (plan.replicas, count, span)
        if key not in self._routed:
            self._routed[key] = self._arrivals.of(*key)
        return self._routed[key].at_rate(rate_per_s)

    def _run(self, plan: Candidate, rate_per_s: float, routed: Routed, level: Level) -> tuple[Score, Peaks]:
        for part in self._parts(plan, rate_per_s, level):
            first = routed.first_part(part)
            if any(len(share) < LEAST_PART for share in first.shares):
                continue
            runs, peaks = self._simulate(plan, rate_per_s, first)
            if any(lost_already(_warm(runs, goal), routed.requests, goal) for goal in self._goals):
                lost = self._score(plan, rate_per_s, runs)
                warm = {goal.name: statistic(_warm(runs, goal), goal.statistic) for goal in self._goals}
                return replace(lost, values_s=warm), peaks
        runs, peaks = self._simulate(plan, rate_per_s, routed)
        return self._score(plan, rate_per_s, runs, routed), peaks

    def _parts(self, plan: Candidate, rate_per_s: float, level: Level) -> tuple[float, ...]:
        """Shares of a sample after which a plan is given up where it is lost by then."""
        if level is Level.VERDICT and self._arrivals.together(plan.replicas) == 1:
            return VERDICT_PARTS
        busy = plan.load_share(rate_per_s, self.bounds(plan.family)) > HIGH_LOAD
        return (FIRST_PART,) if busy and level in (Level.SEARCH, Level.VERDICT) else ()

    def _simulate(self, plan: Candidate, rate_per_s: float, routed: Routed) -> tuple[list[ServingRun], Peaks]:
        replica = self.replicas[plan.family]
        if self._arrivals.together(plan.replicas) == 1:
            runs = self._continued((plan, rate_per_s), routed, replica)
        else:
            runs = self._runs(plan, routed, replica.cost, replica.limits, replica.curves)
        self.longest_run = max(self.longest_run, routed.requests)
        return runs, self._peaks(runs, replica.limits)

    def _peaks(self, runs: list[ServingRun], limits: ServingLimits) -> Peaks:
        sequences = max(run.peak_sequences for run in runs)
        longest = -(-self._arrivals.longest // limits.block_tokens)
        if any(run.requests.prefixes is not None for run in runs):
            longest = ANY_BLOCKS
        return Peaks(
            places=max(places_taken(run.peak_sequences, run.finish_s) for run in runs),
            step_tokens=max(sequences, *(run.peak_step_tokens for run in runs)),
            kv_blocks=max(run.peak_kv_blocks for run in runs) + longest + sequences,
        )

    def _continued(self, key: Hashable, routed: Routed, replica: Replica) -> list[ServingRun]:
        """Runs that go on from those of fewer requests of the same plan at the same rate."""
        _, before = self._held.pop(key, (None, []))
        if len(self._held) >= MOST_HELD:
            del self._held[next(iter(self._held))]
        held = [
            simulate_on(one, share, replica.cost, replica.limits, replica.curves)
            for one, share in zip_longest(before[: len(routed.shares)], routed.shares)
        ]
        self._held[key] = routed, held
        return [one.run for one in held]

    def _runs(
        self, plan: Candidate, routed: Routed, cost: StepCost, limits: ServingLimits, curves: Curves
    ) -> list[ServingRun]:
        together = self._arrivals.together(plan.replicas)
        if together == 1:
            return [simulate(share, cost, limits, curves=curves) for share in routed.shares]
        replicas = (ReplicaModel(cost=cost, limits=limits, curves=curves),) * together
        stages = (ServingStage(replicas=replicas, router=router_of(self._arrivals)) for _ in routed.shares)
        pools = (simulate_system(share, (stage,)) for share, stage in zip(routed.shares, stages, strict=True))
        return [run for pool in pools for run in pool.stages[0]]

    def _score(self, plan: Candidate, rate_per_s: float, runs: list[ServingRun], routed: Routed | None = None) -> Score:
        """Of runs of what was `routed`; of a first part of it, after which the plan was given up, without."""
        partial = routed is None
        seen = Seen.of(runs, routed)
        figures = self._figures(plan, rate_per_s, runs, seen.times_s)
        by_metric = {metric: getattr(figures, f"{metric}_s") for metric in METRICS}
        offered = rate_per_s * self._output_tokens
        behind = [] if partial else [run for run in runs if falls_behind(run)]
        limits = self.replicas[plan.family].limits
        filling = [run for run in behind if not is_full(run, limits) and len(run.requests) < FILLED]
        settled = partial or all(is_settled(run.requests.arrival_s, run.finish_s) for run in runs)
        return Score(
            plan=plan,
            rate_per_s=rate_per_s,
            values_s={goal.name: by_metric[goal.metric][goal.statistic] for goal in self._goals},
            grows=len(behind) > len(filling),
            settled=settled and not filling,
            clearance={goal.name: seen.clearance(goal) for goal in self._goals} if seen.sample else {},
            load_share=plan.load_share(rate_per_s, self.bounds(plan.family)),
            e2e_s=figures.e2e_s["mean"],
            wh_per_mtok=figures.power_w / offered / 3600 * 1e6,
            partial=partial,
            detail=figures,
        )

    def _figures(
        self, plan: Candidate, rate_per_s: float, runs: list[ServingRun], steady: Mapping[str, Floats]
    ) -> ServingFigures:
        replica = self.replicas[plan.family]
        times = {metric: statistics(values) for metric, values in steady.items()}
        offered = rate_per_s / plan.replicas * self._output_tokens
        uses = [power_use(replica.deployment, run) for run in runs]
        busy_s = [run.busy_s / float(run.requests.output_tokens.sum()) for run in runs]
        watts = [use.mean_w(offered * seconds) for use, seconds in zip(uses, busy_s, strict=True)]
        return ServingFigures(
            ttft_s=times["ttft"],
            tpot_s=times["tpot"],
            e2e_s=times["e2e"],
            output_tokens_per_s=plan.replicas * float(np.mean([run.output_tokens_per_s for run in runs])),
            power_w=plan.replicas * float(np.mean(watts)),
            requests=sum(len(run.requests) for run in runs),
            preemptions=sum(run.preemptions for run in runs),
            kv_share=max(run.peak_kv_blocks for run in runs) / replica.limits.kv_blocks,
            clock=1 / float(np.mean([run.clock_slowdown for run in runs])),
        )


def _warm(runs: list[ServingRun], goal: Goal) -> Floats:
    """Latencies in runs of a first part of the load, after the warm-up, which is at most half of it."""
    found = []
    for run in runs:
        arrival = run.requests.arrival_s
        warm_up = min(WARM_UP * lifetime_s(arrival, run.finish_s), float(np.ptp(arrival)) / 2)
        found.append(getattr(run, f"{goal.metric}_s")[arrival >= arrival[0] + warm_up])
    return np.concatenate(found)


def statistics(values: Floats) -> dict[str, float]:
    """Mean and quantiles; of a figure that nobody has, not a number."""
    return {name: statistic(values, name) for name in STATISTICS}


def is_full(run: ServingRun, limits: ServingLimits) -> bool:
    """Whether a run met the limits of its batch, or nearly."""
    return run.peak_sequences >= FULL * limits.max_sequences or run.peak_kv_blocks >= FULL * limits.kv_blocks


def falls_behind(run: ServingRun) -> bool:
    """Whether the queue of a replica grows."""
    return backlog_grows(run.requests.arrival_s, run.first_token_s, run.finish_s)
