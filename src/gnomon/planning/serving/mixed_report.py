"""A mixture of chips as the report of a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.planning.serving.axes import axes_of, limits_of
from gnomon.planning.serving.goals import of_plan
from gnomon.planning.serving.intervals import DRAWS, Spread, Spreads, estimate
from gnomon.planning.serving.labels import pool_label
from gnomon.planning.serving.mixed import MixedPlan, MixedPool, MixedSearch
from gnomon.planning.serving.report import known_times, planned_load, pool_of_plan
from gnomon.planning.serving.unread import one_by_one, unread_columns
from gnomon.planning.unmodelled import assumed_by, idle_in_plans
from gnomon.search import Candidate
from gnomon.search.mixture import ReplicaKind, best_by
from gnomon.spec import Goal, NotModelled, Plan
from gnomon.spec.answers import PlanReport, PlanScore, Resolved
from gnomon.spec.workload import METRICS, Floats


def mixed_report(search: MixedSearch, found: MixedPlan) -> PlanReport:
    """The best mixture, and the best plan of one kind of chip beside it."""
    task = search.task
    best = _score(search, found)
    first = search.evaluator.replicas[found.pools[0].plan.family]
    goal = max(task.goals, key=lambda goal: _share(found, goal), default=None)
    return PlanReport(
        title=task.title,
        not_modelled=(
            *first.engine.not_modelled(task.engine.settings, first.deployment),
            *assumed_by(first.deployment),
            *_not_modelled(search, found),
            *unread_columns(task.arrivals.whole, task.arrivals.load, task.arrivals.trace),
            *one_by_one(task.arrivals.load, task.arrivals.trace),
            *idle_in_plans(task.fleet, task.model),
        ),
        plans_considered=search.considered,
        plans_fit=search.fit,
        plans_simulated=len(search.tried),
        axes=axes_of(task, search.families, mixed=True),
        requests_simulated=found.figures.requests,
        requests_searched=search.evaluator.longest_run,
        router="weighted" if len(found.pools) > 1 else task.arrivals.router,
        model_dtype=task.model.dtype,
        model_context=task.model.max_context,
        plan_context=min(_context(search, pool) for pool in found.pools),
        best=best,
        pareto=(best,),
        binding=goal.name if goal else "load",
        limits=limits_of(found.figures),
        runner_up=_one_kind(search, found),
        rejected={},
        goals=task.goals,
        goal_results=of_plan(task.goals, vars(best), best.predicted),
        command="",
        resolved=Resolved.of(task.model, first.deployment.pool),
    )


def _share(found: MixedPlan, goal: Goal) -> float:
    """What part of a limit is used, over the requests of all kinds of chip."""
    times: Mapping[str, float] = getattr(found.figures, f"{goal.metric}_s")
    return times[goal.statistic] / goal.limit_s


def _context(search: MixedSearch, pool: MixedPool) -> int:
    replica = search.evaluator.replicas[pool.plan.family]
    return replica.engine.capacity(replica.deployment.settings).context


def _not_modelled(search: MixedSearch, found: MixedPlan) -> Iterable[NotModelled]:
    task = search.task
    if len(search.task.fleet.pools) == 1:
        yield NotModelled(option="--pools mixed", why="the fleet has one kind of chip")
    if task.requests is not None:
        why = f"{found.figures.requests:,} were simulated on one replica of each kind"
        yield NotModelled(option=f"--requests {task.requests}", why=why)


def _score(search: MixedSearch, found: MixedPlan) -> PlanScore:
    task, figures = search.task, found.figures
    usd_h = sum(pool.plan.chips * task.chip(pool.plan.family.chip).price_usd_h for pool in found.pools)
    tokens_per_s = found.rate_per_s * task.job.output_tokens
    usd_per_mtok, wh_per_mtok = usd_h / (tokens_per_s * 3600 / 1e6), figures.power_w / tokens_per_s / 3600 * 1e6
    times: dict[str, Any] = {f"{metric}_s": known_times(getattr(figures, f"{metric}_s")) for metric in METRICS}
    amounts: dict[str, Any] = {
        "usd_h": usd_h, "usd_per_mtok": usd_per_mtok, "wh_per_mtok": wh_per_mtok, "power_w": figures.power_w,
        "output_tokens_per_s": tokens_per_s,
    }  # fmt: skip
    written = amounts | times | {
        "rate_per_s": found.rate_per_s, "requests": figures.requests, "max_rate_per_s": found.most_per_s,
    }  # fmt: skip
    return PlanScore(
        plan=_plan(search, found, written),
        feasible=True,
        max_rate_per_s=found.most_per_s,
        margin=known_times({goal.name: 1 - _share(found, goal) for goal in task.goals}),
        label=" + ".join(pool_label(task, pool.plan) for pool in found.pools),
        predicted=_predicted(search, found, usd_per_mtok, tokens_per_s, wh_per_mtok),
        **amounts,
        **times,
    )


def _plan(search: MixedSearch, found: MixedPlan, predicted: dict[str, Any]) -> Plan:
    task = search.task
    least = min(pool.weight for pool in found.pools)
    pools = tuple(
        replace(pool_of_plan(task, "both", pool.plan, search.evaluator), weight=pool.weight / least)
        for pool in found.pools
    )
    return Plan.of_pools(
        pools,
        model=task.reference,
        router="weighted" if len(pools) > 1 else task.arrivals.router,
        load=planned_load(task, found.rate_per_s, found.figures.requests),
        goals=task.goals,
        predicted=predicted,
    )


def _predicted(
    search: MixedSearch, found: MixedPlan, usd_per_mtok: float, tokens_per_s: float, wh_per_mtok: float
) -> dict[str, Any]:
    """Intervals: each kind's own under shared draws, in proportion to its requests."""
    rated = search.task.objective.name == "throughput"
    shares = np.array([pool.plan.replicas * pool.score.rate_per_s for pool in found.pools])
    shares /= shares.sum()
    drawn = [_drawn(search, pool, rated) for pool in found.pools]
    spread = Spread(
        times={key: _mean([one.times[key] for one in drawn], shares) for key in drawn[0].times},
        power=_mean([one.power for one in drawn], shares),
        tokens=_mean([one.tokens for one in drawn], shares),
        rate=_mean([one.rate for one in drawn if one.rate is not None], shares) if rated else None,
    )
    made: Floats = spread.rate if spread.rate is not None else np.ones(DRAWS)
    return spread.of(found.figures) | {
        "output_tokens_per_s": estimate(tokens_per_s, made),
        "usd_per_mtok": estimate(usd_per_mtok, 1 / made),
        **({"rate_per_s": estimate(found.rate_per_s, made)} if rated else {}),
        "wh_per_mtok": estimate(wh_per_mtok, spread.power),
        "power_w": estimate(found.figures.power_w, spread.power),
    }


def _drawn(search: MixedSearch, pool: MixedPool, rated: bool) -> Spread:
    """Of one replica under its share of the load."""
    load, score = search.thinned.load_per_s, pool.score
    ways: Any = load / score.rate_per_s if load else 1
    plan = Candidate(family=pool.plan.family, replicas=ways)
    whole = replace(score, plan=plan, rate_per_s=load or score.rate_per_s)
    return Spreads(search.evaluator, search.task.goals, rated and not load).draw(whole)


def _mean(each: list[Floats], shares: Floats) -> Floats:
    return np.asarray(np.sum([part * one for part, one in zip(shares, each, strict=True)], axis=0))


def _one_kind(search: MixedSearch, found: MixedPlan) -> dict[str, Any]:
    """The best plan of one kind of chip, of those that were run."""
    known = search.known
    if search.task.objective.name == "throughput":
        alone = max(((kind.most * each, kind, kind.most) for kind, each in known.items()), key=lambda one: one[0])
        rate, kind, count = alone
        why = f"one kind of chip sustains {rate / found.rate_per_s:.0%} of the rate"
        return _beside(search, kind, count) | {"why": why}
    options = [(kind, best_by({kind: each}, search.task.job.rate_per_s)) for kind, each in known.items()]
    fits = [(mixture[0][1] * kind.usd_h, kind, mixture[0][1]) for kind, mixture in options if mixture]
    if len(found.pools) == 1 or not fits:
        return {"why": "no mixture is cheaper" if fits else "no one kind of chip that was run carries the load"}
    usd_h, kind, count = min(fits, key=lambda one: one[0])
    return _beside(search, kind, count) | {"why": f"one kind of chip, {usd_h / found.usd_h - 1:.0%} more expensive"}


def _beside(search: MixedSearch, kind: ReplicaKind, count: int) -> dict[str, Any]:
    plan = Candidate(family=search.chosen[kind], replicas=count)
    usd_h = plan.chips * search.task.chip(plan.family.chip).price_usd_h
    return {"label": pool_label(search.task, plan), "usd_h": usd_h}
