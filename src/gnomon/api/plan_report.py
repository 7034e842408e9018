"""A finished search as a report: scores, the Pareto set, what binds, who came next and why."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon import catalog
from gnomon.api.plan_evaluator import Figures, ServingEvaluator
from gnomon.api.results import PlanReport, PlanScore
from gnomon.api.unmodelled import idle_in_plans
from gnomon.engines import Engine
from gnomon.errors import DoesNotFitError, NoPlanError
from gnomon.load import plan_to_dict
from gnomon.report.why import why_bounded, why_missed
from gnomon.search import Candidate, Found, Job, Level, Objective, Score, highest_rate, pareto
from gnomon.search.neighbours import (
    fastest,
    nearest,
    next_cheaper,
    second_best,
    second_rate,
    shortfall,
    to_the_end,
)
from gnomon.search.objectives import LEAST_SHARE
from gnomon.search.rate import highest
from gnomon.spec import Chip, Cluster, EngineChoice, Model, Plan, ServingLoad, Strategy
from gnomon.techniques import beyond_words
from gnomon.units import format_duration, format_money, format_rate

WORDS = {"max_num_seqs": "{} sequences", "max_num_batched_tokens": "chunked prefill {}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked, beside the job of the search."""

    model: Model
    reference: str
    """By which the model can be read again."""
    fleet: Cluster
    kv_dtype: str
    load: ServingLoad
    job: Job
    objective: Objective
    techniques: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Engine settings as they were given."""

    @property
    def title(self) -> str:
        goals = ", ".join(f"{goal.name} {format_duration(goal.limit_s)}" for goal in self.job.goals)
        aims = {"cost": "cheapest", "throughput": "most throughput", "latency": "fastest", "energy": "least energy"}
        within = f" within {goals}" if goals else ""
        name = catalog.model_title(self.model.name)
        ideas = f" with {', '.join(self.techniques)}" if self.techniques else ""
        return f"{name} on {self.chips}, {self.stream}: {aims[self.objective.name]} plan{ideas}{within}"

    @property
    def chips(self) -> str:
        return ",".join(f"{pool.chip.short}:{pool.count}" for pool in self.fleet.pools)

    def chip(self, name: str) -> Chip:
        return next(pool.chip for pool in self.fleet.pools if pool.chip.name == name)

    @property
    def stream(self) -> str:
        load = self.load
        what = load.trace or f"{load.input_tokens:,} in and {load.output_tokens:,} out"
        return f"{what} at {format_rate(self.job.rate_per_s)}" if self.job.rate_per_s else what


def report(question: Question, found: Found, evaluator: ServingEvaluator, requests: int) -> PlanReport:
    """The answer, but for the seconds it took. Raises NoPlanError, or DoesNotFitError, where there is no best plan."""
    if found.best is None:
        raise no_plan(question, found, evaluator)
    best, job = found.best, question.job
    if question.objective.name != "throughput":
        found = replace(found, scores=(*found.scores, *fastest(found, evaluator, job)))
    most = best.rate_per_s
    if question.objective.name != "throughput":
        most = highest_rate(best, evaluator, found.bounds[best.plan.family], job)
    chosen = plan_score(question, best, evaluator, most)
    replica = evaluator.replicas[best.plan.family]
    goal, _ = best.worst(job.goals)
    return PlanReport(
        title=question.title,
        plans_considered=found.considered,
        plans_fit=found.fit,
        plans_simulated=found.simulated,
        requests_simulated=requests,
        best=chosen,
        pareto=tuple(_front(question, found, best, chosen, evaluator)),
        binding=goal.name if goal else "load",
        runner_up=_runner_up(question, found, best, evaluator),
        rejected=found.rejected,
        goals=job.goals,
        seconds=0.0,
        command=shlex.join(replica.engine.command(chosen.plan)),
        left_to_you=_left(replica.engine, chosen.plan),
        not_modelled=(*replica.engine.not_modelled(question.settings), *idle_in_plans(question.fleet, question.model)),
    )


def _left(engine: Engine, plan: Plan) -> tuple[str, ...]:
    """What the command of one replica lacks: weights that have to be made first, techniques it does not know."""
    plain = replace(plan, replicas=1, goals=())
    beyond = beyond_words(plan.strategy.techniques)
    return tuple(engine.not_expressed(replace(plain, strategy=replace(plan.strategy, techniques=beyond))))


def plan_score(question: Question, score: Score, evaluator: ServingEvaluator, most: float | None = None) -> PlanScore:
    figures: Figures = score.detail
    job = question.job
    usd_h = score.plan.chips * question.chip(score.plan.family.chip).price_usd_h
    # A plan that keeps up makes the tokens it is asked for; the tail of a finite run says less.
    offered = score.rate_per_s * job.output_tokens
    tokens_per_s = figures.output_tokens_per_s if score.grows or score.partial else offered
    usd_per_mtok = usd_h / (tokens_per_s * 3600 / 1e6)
    predicted = {
        "usd_h": usd_h,
        "usd_per_mtok": usd_per_mtok,
        "wh_per_mtok": score.wh_per_mtok,
        "output_tokens_per_s": tokens_per_s,
        "ttft_s": _known(figures.ttft_s),
        "tpot_s": _known(figures.tpot_s),
        "e2e_s": _known(figures.e2e_s),
        "rate_per_s": score.rate_per_s,
        "requests": figures.requests,
    } | ({"max_rate_per_s": most} if most is not None else {})
    return PlanScore(
        plan=_plan(question, score, evaluator, predicted),
        feasible=score.meets(job.goals),
        usd_h=usd_h,
        usd_per_mtok=usd_per_mtok,
        wh_per_mtok=score.wh_per_mtok,
        output_tokens_per_s=tokens_per_s,
        ttft_s=_known(figures.ttft_s),
        tpot_s=_known(figures.tpot_s),
        max_rate_per_s=most,
        margin=_known({goal.name: 1 - score.values_s[goal.name] / goal.limit_s for goal in job.goals}),
        label=label(question, score.plan),
    )


def label(question: Question, plan: Candidate) -> str:
    """`2 x (H100, TP 4, fp8, chunked prefill 2048, 256 sequences)`."""
    family = plan.family
    budgets = [WORDS.get(name, f"{name} {{}}").format(value) for name, value in reversed(family.settings)]
    degrees = [f"TP {family.tp}", *([f"EP {family.ep}"] if family.ep > 1 else [])]
    parts = [question.chip(family.chip).short, *degrees, family.dtype, *budgets]
    return f"{plan.replicas} x ({', '.join(parts)})"


def no_plan(question: Question, found: Found, evaluator: ServingEvaluator) -> DoesNotFitError | NoPlanError:
    """Which plan comes nearest, what it misses by how much, and what to try."""
    job, name = question.job, catalog.model_title(question.model.name)
    if not found.bounds:
        largest = max(question.fleet.pools, key=lambda pool: pool.per_node * pool.chip.memory_bytes)
        size = f"{largest.chip.short}:{min(largest.per_node, largest.count)}"
        return DoesNotFitError(
            f"no replica of {name} with its longest request fits on {question.chips}",
            hint=f"`gnomon fit {question.model.name} --on {size}` says what is missing.",
        )
    if not found.scores:
        plans = [Candidate(family=family, replicas=family.most) for family in found.bounds]
        plan = min(plans, key=lambda plan: shortfall(plan, found.bounds[plan.family], job))
        why, advice = why_bounded(plan, found.bounds[plan.family], job), _wishes(plan, found, job)
    else:
        score = to_the_end(nearest(found.scores, job), evaluator)
        plan, why, advice = score.plan, why_missed(score, job), _advice(score, evaluator, found, job)
    hint = f"Try {', '.join([*advice, 'more or faster chips'])}."
    return NoPlanError(
        f"no plan on {question.chips} meets the goals: the nearest, {label(question, plan)}, {why}", hint=hint
    )


def _wishes(plan: Candidate, found: Found, job: Job) -> list[str]:
    """What a plan that its bounds rule out would need at the least."""
    bounds = found.bounds[plan.family]
    beyond = [goal for goal in job.goals if bounds.floors_s[goal.name] > goal.limit_s]
    wishes = [f"{goal.name} above {format_duration(bounds.floors_s[goal.name])}" for goal in beyond]
    most = plan.replicas * bounds.rate_per_s
    return wishes + ([f"a rate below {format_rate(most)}"] if most < job.rate_per_s else [])


def _advice(score: Score, evaluator: ServingEvaluator, found: Found, job: Job) -> list[str]:
    """Looser goals under which the plan would do, and the rate it holds."""
    missed = [goal for goal in job.goals if score.values_s[goal.name] > goal.limit_s]
    looser = [f"{goal.name}={math.ceil(score.values_s[goal.name] * 1000)}ms" for goal in missed]
    advice = [f"goals of {', '.join(looser)}"] if looser and not score.grows else []
    beyond = score.plan.replicas * found.bounds[score.plan.family].rate_per_s
    beyond = min(beyond, job.rate_per_s) if job.rate_per_s else beyond

    def holds(rate_per_s: float) -> bool:
        return evaluator.evaluate(score.plan, rate_per_s, Level.SEARCH).meets(job.goals)

    least = LEAST_SHARE * beyond
    if job.rate_per_s and holds(least):
        advice.append(f"a rate of {format_rate(highest(holds, least, beyond))}")
    return advice


def _plan(question: Question, score: Score, evaluator: ServingEvaluator, predicted: dict[str, Any]) -> Plan:
    family = score.plan.family
    replica = evaluator.replicas[family]
    load, pool = question.load, replica.deployment.pool
    drawn = ServingLoad(
        trace=load.trace,
        rate_per_s=load.rate_per_s if question.objective.name != "throughput" else score.rate_per_s,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        requests=load.requests if load.trace else max(load.requests, score.detail.requests),
        seed=load.seed,
    )
    return Plan(
        model=question.reference,
        chip=pool.chip.reference,
        per_node=pool.unusual_node_size,
        replicas=score.plan.replicas,
        strategy=Strategy(tp=family.tp, ep=family.ep, techniques=question.techniques),
        dtype=family.dtype,
        kv_dtype=question.kv_dtype,
        engine=EngineChoice(name=replica.engine.name, version=replica.engine.version, settings=replica.settings),
        load=drawn,
        goals=question.job.goals,
        predicted=predicted,
    )


def _front(
    question: Question, found: Found, best: Score, chosen: PlanScore, evaluator: ServingEvaluator
) -> list[PlanScore]:
    """Plans that met their goals and that none beats in price and in the times the goals name (else their p90)."""
    named = {goal.metric: goal.statistic for goal in question.job.goals}

    def figures(score: Score) -> tuple[float, ...]:
        if question.objective.name == "throughput":
            return (score.plan.usd_h, -score.rate_per_s)
        times = (score.detail.ttft_s[named.get("ttft", "p90")], score.detail.tpot_s[named.get("tpot", "p90")])
        return (score.plan.usd_h, *(0.0 if math.isnan(seconds) else seconds for seconds in times))

    met = [best, *(s for s in found.scores if s.plan != best.plan and s.meets(question.job.goals))]
    return [chosen if s is best else plan_score(question, s, evaluator) for s in pareto(met, figures)]


def _runner_up(question: Question, found: Found, best: Score, evaluator: ServingEvaluator) -> dict[str, Any]:
    """By cost the next cheaper plan and what it misses; else the second best and by how much it lost."""
    job = question.job
    by_cost = question.objective.name == "cost"
    if by_cost:
        other = next_cheaper(found, best, evaluator, job)
    elif question.objective.name == "throughput":
        other = second_rate(found, best, evaluator, question.objective, job)
    else:
        other = second_best(found, best, question.objective, job)
    if other is None:
        return {"why": "nothing cheaper holds the model" if by_cost else "no other shape of plan met the goals"}
    plan = other.plan
    facts: dict[str, Any] = {
        "label": label(question, plan),
        "usd_h": plan.chips * question.chip(plan.family.chip).price_usd_h,
    }
    if other.score is None:
        return facts | {"why": why_bounded(plan, found.bounds[plan.family], job)}
    scored = plan_score(question, other.score, evaluator)
    why = why_missed(other.score, job) if by_cost else _why_second(question, best, other.score)
    return facts | {
        "plan": plan_to_dict(scored.plan),
        "ttft_s": scored.ttft_s,
        "tpot_s": scored.tpot_s,
        "margin": scored.margin,
        "why": why,
    }


def _why_second(question: Question, best: Score, other: Score) -> str:
    if question.objective.name == "throughput":
        return f"holds {format_rate(other.rate_per_s)}, the best {format_rate(best.rate_per_s)}"
    if question.objective.name == "energy":
        return f"takes {other.wh_per_mtok:,.0f} Wh/Mtok, the best {best.wh_per_mtok:,.0f}"
    extra = format_money(other.plan.usd_h - best.plan.usd_h)
    took = f"{format_duration(other.e2e_s)} a request on average, the best {format_duration(best.e2e_s)}"
    return f"takes {took} (at {extra}/h more)" if other.plan.usd_h > best.plan.usd_h else f"takes {took}"


def _known(times: Any) -> dict[str, float]:
    """Statistics without those nobody has (JSON has no NaN)."""
    return {name: value for name, value in times.items() if not math.isnan(value)}
