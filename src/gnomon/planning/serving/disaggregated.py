"""Plans whose prompts and answers have replicas of their own: which there are, their bounds and their runs.

Nothing that a decode replica does reaches a prefill replica, so the two stages are run one after the other, and the run
of a prefill stage serves all decode stages behind it. Runs are shared between settings that none of them met.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.engines.base import Deployment
from gnomon.planning.serving.arriving import router_of
from gnomon.planning.serving.evaluator import ServingEvaluator, ServingFigures, statistics
from gnomon.planning.serving.kv_transfer import KvTransfer, kv_transfer
from gnomon.planning.serving.replicas import Replica, Setup
from gnomon.planning.serving.seen import steady_times
from gnomon.planning.steps.energy import power_use
from gnomon.search import Bounds, Candidate, Level, PlanFamily, Score
from gnomon.search.arrivals import Routed
from gnomon.search.bounds import Demand, KnownSteps, disaggregated_bounds
from gnomon.search.judge import NO_PEAKS, Peaks, least_of_windows, same_schedule
from gnomon.sim.serving import ServingRun
from gnomon.sim.serving.apart import StagedRun, StageRun, as_one, decode, prefill, sent_s
from gnomon.sim.serving.system import ReplicaModel, ServingStage, simulate_system
from gnomon.spec import Cluster, Requests, ServingLimits
from gnomon.spec.plan import WHOLE
from gnomon.spec.workload import STATISTICS, Floats

CLEARLY = 1.02
"""Times the limit of a goal from which on a stage alone misses it, whichever part of the run is judged."""
STAGED_PART = 0.375
"""Share of a sample after which a plan of two stages is given up: of a smaller one the warm-up leaves too little for a
queue that grows to show."""
MOST_STAGES = 128
"""Runs of stages that are kept for others."""


def disaggregated_space(setup: Setup, fleet: Cluster, plain: list[PlanFamily]) -> list[PlanFamily]:
    """Every number of every kind of prefill replica ahead of every kind of decode replica that chips are left for, in
    one number format. A prefill replica is tried with the settings that allow tokens per step, a decode replica with
    those that allow sequences; others have their defaults."""
    counts = {pool.chip.name: pool.count for pool in fleet.pools}
    roles = _by_role(setup, plain)
    ahead = [family for family in plain if "prefill" in roles[family.order]]
    behind = [family for family in plain if "decode" in roles[family.order]]
    found: list[PlanFamily] = []
    first = max((family.order for family in plain), default=-1) + 1
    for one in ahead:
        for replicas in range(1, one.most + 1):
            pool = Candidate(family=one, replicas=replicas)
            for other in behind:
                taken = pool.chips if one.chip == other.chip else 0
                most = (counts[other.chip] - taken) // other.chips
                if most < 1 or one.dtype != other.dtype:
                    continue
                found.append(replace(other, most=most, order=first + len(found), prefill=pool, alone=other))
    return found


def _by_role(setup: Setup, plain: list[PlanFamily]) -> dict[int, frozenset[str]]:
    """By the order of a family: the roles that its settings are tried in."""
    defaults: dict[tuple[str, str], dict[str, int]] = {}
    known: dict[tuple[str, str, str], frozenset[str]] = {}
    found = {}
    for family in plain:
        place = family.chip, family.dtype
        usual = defaults.setdefault(place, dict(family.settings))
        turned = [name for name, value in family.settings if value != usual[name]]
        for name in turned:
            if (*place, name) not in known:
                known[*place, name] = _roles_of(setup, family, name, usual)
        each = [known[*place, name] for name in turned]
        found[family.order] = frozenset.intersection(frozenset({"prefill", "decode"}), *each)
    return found


def _roles_of(setup: Setup, family: PlanFamily, name: str, usual: Mapping[str, int]) -> frozenset[str]:
    """What a knob allows more of: tokens per step, which prompts need, or sequences, which decodes are."""
    engine, deployment = setup.deploy_family(family, setup.engine.settings)
    settings = dict(deployment.settings) | dict(usual)
    before, after = engine.capacity(settings), engine.capacity(settings | {name: dict(family.settings)[name]})
    roles = {"prefill": after.step_tokens != before.step_tokens, "decode": after.sequences != before.sequences}
    return frozenset(role for role, acts in roles.items() if acts)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStage:
    """A stage's run, and what it tells of replicas with other limits."""

    run: StageRun
    number: int
    """Among all that were run."""
    limits: ServingLimits
    peaks: Peaks


class PoolsEvaluator(ServingEvaluator):
    """See `ServingEvaluator`; families with prefill replicas ahead of them are run in two stages."""

    def __init__(self, *given: Any, how: str = WHOLE) -> None:
        super().__init__(*given)
        self._how = how
        whole = self._arrivals.whole
        self._prompts = Demand.of(replace(whole, output_tokens=np.ones(len(whole), np.int64)))
        self._prompt_times: dict[Hashable, KnownSteps] = {}
        self._transfers: dict[Hashable, KvTransfer] = {}
        self._stages: dict[Hashable, list[KnownStage]] = {}
        self._ran = 0

    def fits(self, family: PlanFamily) -> bool:
        ahead = family.prefill is None or self.replicas.find(family.prefill.family) is not None
        return ahead and super().fits(family)

    def bounds(self, family: PlanFamily) -> Bounds:
        if family.prefill is None:
            return super().bounds(family)
        if family not in self._bounds:
            self._bounds[family] = self._bounded(family, family.prefill)
        return self._bounds[family]

    def _bounded(self, family: PlanFamily, pool: Candidate) -> Bounds:
        ahead, behind = self.replicas[pool.family], self.replicas[family]
        prompts = self._prompt_times.setdefault(ahead.cost_key, KnownSteps(ahead.cost, self._prompts))
        decodes = self._times.setdefault(behind.cost_key, KnownSteps(behind.cost, self._demand))
        watts = (_idle_w(pool.family, ahead.deployment), _idle_w(family, behind.deployment))
        transfer_s = self._transfer(Candidate(family=family, replicas=1))  # with more replicas it takes no less
        return disaggregated_bounds(
            (prompts, ahead.limits, pool.replicas), (decodes, behind.limits), transfer_s, self._goals, watts
        )

    def _transfer(self, plan: Candidate) -> KvTransfer:
        pool = plan.family.prefill
        assert pool is not None
        ahead, behind = self.replicas[pool.family], self.replicas[plan.family]
        one_node = plan.chips <= behind.deployment.pool.node_size
        key = (ahead.cost_key, ahead.limits.max_step_tokens, behind.cost_key, plan.chips if not one_node else 0)
        if key not in self._transfers:
            steps = KnownSteps(ahead.cost, self._prompts)

            def prompt_s(tokens: int) -> float:
                return steps.prompt_s(tokens, ahead.limits.max_step_tokens)

            self._transfers[key] = kv_transfer(
                behind.engine, ahead.deployment, behind.deployment, plan.chips, self._how, prompt_s
            )
        return self._transfers[key]

    def evaluate(self, plan: Candidate, rate_per_s: float, level: Level) -> Score:
        if plan.family.prefill is None:
            return super().evaluate(plan, rate_per_s, level)
        score, _ = self._judged(plan, rate_per_s, level)
        return score

    def alike(self, one: Candidate, other: Candidate, peaks: Peaks) -> bool:
        return one.family.prefill == other.family.prefill and super().alike(one, other, peaks)

    def drawn(self, plan: Candidate, draws: int) -> list[tuple[Any, ...]]:
        if plan.family.prefill is None:
            return super().drawn(plan, draws)
        each = [self._drawn(family, draws) for family in (plan.family, plan.family.prefill.family)]
        return [(*behind, *ahead) for behind, ahead in zip(*each, strict=True)]

    def most_per_s(self, plan: Candidate, *costs: Any) -> float:
        if plan.family.prefill is None:
            return super().most_per_s(plan, *costs)
        cost, limits, _, ahead, its_limits, _ = costs
        prompts, decodes = KnownSteps(ahead, self._prompts), KnownSteps(cost, self._demand)
        bounds = disaggregated_bounds(
            (prompts, its_limits, plan.family.prefill.replicas), (decodes, limits), lambda tokens: 0.0, ()
        )
        return plan.most_per_s(bounds) / plan.replicas

    def part(self, plan: Candidate, rate_per_s: float, count: int, *costs: Any) -> tuple[ServingFigures, Peaks]:
        if plan.family.prefill is None:
            return super().part(plan, rate_per_s, count, *costs)
        routed = self._routed_to(plan, rate_per_s, count, self.bounds(plan.family).e2e_s)
        runs: list[ServingRun] = [self._staged(plan, share, costs) for share in routed.shares]
        figures = self._figures(plan, rate_per_s, runs, steady_times(runs))
        return figures, self._peaks([run for stage in _stages(runs)[1:] for run in stage.runs], costs[1])

    def _routed_to(self, plan: Candidate, rate_per_s: float, count: int, life_s: float) -> Routed:
        """All replicas of both stages are run, so they see the whole load."""
        whole = plan if plan.family.prefill is None else replace(plan, replicas=1)
        return super()._routed_to(whole, rate_per_s, count, life_s)

    def _simulate(self, plan: Candidate, rate_per_s: float, routed: Routed) -> tuple[list[ServingRun], Peaks]:
        if plan.family.prefill is None:
            return super()._simulate(plan, rate_per_s, routed)
        runs: list[ServingRun] = [self._shared_run(plan, share) for share in routed.shares]
        self.longest_run = max(self.longest_run, routed.requests)
        return runs, NO_PEAKS

    def _shared_run(self, plan: Candidate, share: Requests) -> StagedRun:
        """Both stages, each as it was run before under limits that it did not meet."""
        pool = plan.family.prefill
        assert pool is not None
        ahead, behind = self.replicas[pool.family], self.replicas[plan.family]
        if self._arrivals.load_aware:
            costs = [(each.cost, each.limits, each.curves) for each in (behind, ahead)]
            return self._staged(plan, share, (*costs[0], *costs[1]))
        first, number = self._prompted(pool, share)
        transfer_s = self._transfer(plan)

        def answers() -> StageRun:
            return decode(first, [_model(behind)] * plan.replicas, router_of(self._arrivals, 1), transfer_s)

        second, _ = self._stage((behind.cost_key, plan.replicas, number, id(transfer_s)), behind.limits, answers)
        return as_one([first, second])

    def _prompted(self, pool: Candidate, share: Requests) -> tuple[StageRun, int]:
        """The prefill stage of a plan, and its number."""
        ahead = self.replicas[pool.family]

        def prompts() -> StageRun:
            return prefill(share, [_model(ahead)] * pool.replicas, router_of(self._arrivals))

        return self._stage((ahead.cost_key, pool.replicas, _digest(share)), ahead.limits, prompts)

    def _run(self, plan: Candidate, rate_per_s: float, routed: Routed, level: Level) -> tuple[Score, Peaks]:
        """A plan whose prompts alone miss a goal needs no decode stage."""
        pool = plan.family.prefill
        if pool is not None and level is not Level.TO_THE_END and not self._arrivals.load_aware:
            lost = self._lost(plan, pool, rate_per_s, routed)
            if lost is not None:
                return lost, NO_PEAKS
        return super()._run(plan, rate_per_s, routed, level)

    def _parts(self, plan: Candidate, rate_per_s: float, level: Level) -> tuple[float, ...]:
        """Runs of both stages begin anew for each part, so there is one at most."""
        if plan.family.prefill is None:
            return super()._parts(plan, rate_per_s, level)
        return (STAGED_PART,) if level is Level.VERDICT else super()._parts(plan, rate_per_s, level)

    def _lost(self, plan: Candidate, pool: Candidate, rate_per_s: float, routed: Routed) -> Score | None:
        """The score of a plan whose prompts, with the transfer of their KV cache, are later than a goal allows, however
        soon the decode replicas go on."""
        bounds, limits = self.bounds(plan.family), self.replicas[plan.family].limits
        goals = [goal for goal in self._goals if goal.metric == "ttft"]
        if not goals or len(routed.shares) > 1:
            return None
        share = routed.shares[0]
        first, _ = self._prompted(pool, share)
        sent = sent_s(share.input_tokens, self._transfer(plan))
        soonest = first.left_s - share.arrival_s + sent + limits.ingress_s + limits.egress_s
        least = {goal.name: least_of_windows(soonest, share.arrival_s, goal.statistic, bounds.e2e_s) for goal in goals}
        if all(least[goal.name] <= CLEARLY * goal.limit_s for goal in goals):
            return None
        times = dict.fromkeys(STATISTICS, math.nan)
        figures = ServingFigures(
            ttft_s=times | {goal.statistic: least[goal.name] for goal in goals}, tpot_s=times, e2e_s=times,
            output_tokens_per_s=rate_per_s * self._output_tokens, power_w=math.nan, requests=len(share), preemptions=0,
        )  # fmt: skip
        return Score(
            plan=plan,
            rate_per_s=rate_per_s,
            values_s=dict(bounds.floors_s) | least,
            grows=False,
            load_share=plan.load_share(rate_per_s, bounds),
            e2e_s=bounds.e2e_s,
            wh_per_mtok=math.nan,
            missed=True,
            detail=figures,
        )

    def _stage(self, key: Hashable, limits: ServingLimits, run: Callable[[], StageRun]) -> tuple[StageRun, int]:
        """A stage's run and its number, from those that are known or by `run`."""
        alike = self._stages.pop(key, [])
        if len(self._stages) >= MOST_STAGES:
            del self._stages[next(iter(self._stages))]
        self._stages[key] = alike
        for known in alike:
            if same_schedule(known.limits, limits, known.peaks):
                return known.run, known.number
        found = run()
        self._ran += 1
        peaks = self._peaks(list(found.runs), limits)
        alike.append(KnownStage(run=found, number=self._ran, limits=limits, peaks=peaks))
        return found, self._ran

    def _staged(self, plan: Candidate, share: Requests, costs: Any) -> StagedRun:
        """Both stages by some costs; together where the router looks at the replicas."""
        cost, limits, curves, ahead, its_limits, its_curves = costs
        pool, arrivals = plan.family.prefill, self._arrivals
        assert pool is not None
        first = [ReplicaModel(cost=ahead, limits=its_limits, curves=its_curves)] * pool.replicas
        second = [ReplicaModel(cost=cost, limits=limits, curves=curves)] * plan.replicas
        transfer_s = self._transfer(plan)
        if not arrivals.load_aware:
            prompts = prefill(share, first, router_of(arrivals))
            return as_one([prompts, decode(prompts, second, router_of(arrivals, 1), transfer_s)])
        stages = (
            ServingStage(replicas=first, router=router_of(arrivals)),
            ServingStage(replicas=second, router=router_of(arrivals, 1), transfer_s=transfer_s),
        )
        return StageRun.of_system(simulate_system(share, stages))

    def _figures(
        self, plan: Candidate, rate_per_s: float, runs: list[ServingRun], steady: Mapping[str, Floats]
    ) -> ServingFigures:
        if plan.family.prefill is None:
            return super()._figures(plan, rate_per_s, runs, steady)
        times = {metric: statistics(values) for metric, values in steady.items()}
        pools = ((plan.family.prefill.family, plan.family.prefill.replicas), (plan.family, plan.replicas))
        watts = sum(
            self._stage_w(family, replicas, stage, rate_per_s)
            for (family, replicas), stage in zip(pools, _stages(runs), strict=True)
        )
        return ServingFigures(
            ttft_s=times["ttft"],
            tpot_s=times["tpot"],
            e2e_s=times["e2e"],
            output_tokens_per_s=float(np.mean([run.output_tokens_per_s for run in runs])),
            power_w=watts,
            requests=sum(len(run.requests) for run in runs),
            preemptions=sum(run.preemptions for run in runs),
            kv_share=max(
                run.peak_kv_blocks / self.replicas[family].limits.kv_blocks
                for (family, _), stage in zip(pools, _stages(runs), strict=True)
                for run in stage.runs
            ),
            clock=1 / float(np.mean([run.clock_slowdown for run in runs])),
        )

    def _stage_w(self, family: PlanFamily, replicas: int, stage: StageRun, rate_per_s: float) -> float:
        """Watts of all replicas of a stage at a rate: joules of a request's steps, and what waits in between."""
        deployment = self.replicas[family].deployment
        uses = [power_use(deployment, run) for run in stage.runs]
        busy = min(rate_per_s * sum(use.busy_s for use in uses) / len(stage.requests), replicas)
        busy_w = sum(use.busy_j for use in uses) / sum(use.busy_s for use in uses)
        return busy * busy_w + (replicas - busy) * uses[0].waiting_w


def _stages(runs: list[ServingRun]) -> tuple[StageRun, ...]:
    """The stages of a plan's runs; of several the last, whose stretch of a trace is the busiest."""
    run = runs[-1]
    assert isinstance(run, StagedRun)
    return run.stages


def _model(replica: Replica) -> ReplicaModel:
    return ReplicaModel(cost=replica.cost, limits=replica.limits, curves=replica.curves)


def _idle_w(family: PlanFamily, deployment: Deployment) -> float:
    return family.chips * deployment.pool.chip.idle_w


def _digest(share: Requests) -> Hashable:
    """Tells apart the streams of one search: a longer one of the same load begins with the same requests."""
    sums = int(share.input_tokens.sum()), int(share.output_tokens.sum())
    return len(share), float(share.arrival_s[-1]), float(share.arrival_s.sum()), *sums


def pools_of(plan: Candidate) -> Iterator[tuple[str, Candidate]]:
    """The pools of a plan with their roles."""
    family = plan.family
    if family.prefill is None:
        yield "both", plan
        return
    assert family.alone is not None
    yield "prefill", family.prefill
    yield "decode", Candidate(family=family.alone, replicas=plan.replicas)
