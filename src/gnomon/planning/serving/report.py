"""A finished search as a report: scores with intervals, the Pareto set, the binding goal, the runner-up and why."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.engines import Engine
from gnomon.planning.serving.axes import axes_of, limits_of
from gnomon.planning.serving.by_rate import latency_by_rate
from gnomon.planning.serving.disaggregated import pools_of
from gnomon.planning.serving.evaluator import MOST_REQUESTS, ServingEvaluator, ServingFigures
from gnomon.planning.serving.goals import of_plan
from gnomon.planning.serving.intervals import Spreads, estimate
from gnomon.planning.serving.labels import label
from gnomon.planning.serving.pools import UNSENT
from gnomon.planning.serving.replicas import Replica
from gnomon.planning.serving.slots import slots_of_plan
from gnomon.planning.serving.task import PlanTask
from gnomon.planning.serving.unread import idle_settings, one_by_one, unread_columns
from gnomon.planning.serving.why import what_it_buys, why_bounded, why_missed, why_second
from gnomon.planning.unmodelled import assumed_by, idle_in_plans, set_aside
from gnomon.search import Candidate, PlanFamily, Score, SearchResult, highest_rate, pareto
from gnomon.search.neighbours import (
    Neighbour,
    alternatives,
    confirmed,
    fastest,
    next_cheaper,
    other_shape,
    other_shape_by_rate,
)
from gnomon.spec import Chip, EngineChoice, Estimate, NotModelled, Plan, PlanPool, ServingLoad, Strategy
from gnomon.spec.answers import PlanReport, PlanScore, Resolved
from gnomon.spec.plan import AGGREGATED, ROUTERS, WHOLE
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.spec.workload import Floats
from gnomon.techniques import beyond_config
from gnomon.units import format_rate

NEAR_TIE = 1.1
"""Price, relative to the best, up to which a plan that does something better is listed."""
NO_OTHER = "no other plan meets the goals"
LEAST_RATE = (
    "the plan is for the highest rate that meets the goals on all chips of a pool; {} is the least it has to sustain"
)
APART = (
    "a KV connector in every replica, and a router that sends each prompt to a prefill replica and then to a decode "
    "replica"
)
ONE_POOL = "a plan has replicas of one kind of chip: the pools are alternatives"


def report(
    question: PlanTask, found: SearchResult, evaluator: ServingEvaluator, families: Sequence[PlanFamily]
) -> PlanReport:
    """The answer to a question that has a best plan among these families."""
    best, job = found.best, question.job
    assert best is not None
    searched = evaluator.longest_run
    most = best.rate_per_s
    others: list[Score] = []
    if question.objective.name != "throughput":
        others = [*alternatives(found, best, evaluator, job), *fastest(found, evaluator, job)]
        most = highest_rate(best, evaluator, found.bounds[best.plan.family], job)
    met = [score for score in (*found.scores, *others) if score.plan != best.plan and score.meets(job.goals)]
    book = PlanBook(question, evaluator)
    chosen = book.score(best, most)
    cheaper = next_cheaper(found, best, evaluator, job) if question.objective.name == "cost" else None
    replica, chip = evaluator.replicas[best.plan.family], question.chip(best.plan.family.chip)
    goal, _ = best.worst(job.goals)
    return PlanReport(
        title=question.title,
        not_modelled=(
            *replica.engine.not_modelled(
                question.engine.settings, replica.deployment, _idle(question, replica, best), under_load=True
            ),
            *_not_modelled(question, best),
            *assumed_by(replica.deployment),
            *unread_columns(question.arrivals.whole, question.arrivals.load, question.arrivals.trace, [replica.limits]),
            *one_by_one(question.arrivals.load, question.arrivals.trace),
            *idle_in_plans(question.fleet, question.model),
        ),
        plans_considered=found.considered,
        plans_fit=found.fit,
        plans_simulated=found.simulated,
        axes=axes_of(question, families),
        requests_simulated=best.detail.requests,
        requests_searched=searched,
        router=question.arrivals.router,
        model_dtype=question.model.dtype,
        model_context=question.model.max_context,
        plan_context=replica.engine.capacity(replica.deployment.settings).context,
        best=chosen,
        pareto=tuple(_front(book, best, chosen, met)),
        binding=goal.name if goal else "load",
        limits=limits_of(best.detail) | slots_of_plan(best, evaluator, question.setup.adapters),
        runner_up=_runner_up(book, best, found.runner_up),
        alternative=_alternative(book, found, best, met),
        next_cheaper=_next_cheaper(book, found, cheaper) if question.objective.name == "cost" else {},
        near_ties=tuple(_near_ties(book, best, met)),
        rejected=found.rejected,
        goals=job.goals,
        goal_results=of_plan(job.goals, vars(chosen), chosen.predicted),
        by_rate=tuple(latency_by_rate(best, most, evaluator, job)) if question.by_rate else (),
        command=_command(replica.engine, chip, chosen.plan),
        left_to_you=_left(replica.engine, chosen.plan),
        resolved=Resolved.of(question.model, replica.deployment.pool),
    )


def _idle(question: PlanTask, replica: Replica, best: Score) -> tuple[str, ...]:
    engine, deployment, given = replica.engine, replica.deployment, question.engine.settings
    return (
        *set_aside(engine, deployment, given),
        *idle_settings(engine, deployment, given, question.arrivals.whole, preempted=best.detail.preemptions > 0),
    )


def _not_modelled(question: PlanTask, best: Score) -> Iterable[NotModelled]:
    if best.plan.family.prefill is not None:
        yield from UNSENT
    elif question.kv_transfer != WHOLE:
        why = "the best plan sends no KV cache between replicas"
        yield NotModelled(option=f"--kv-transfer {question.kv_transfer}", why=why)
    if len(question.fleet.pools) > 1 and question.pools == AGGREGATED:
        yield NotModelled(option="--fleet", why=ONE_POOL)
    alone = all(pool.replicas == 1 for _, pool in pools_of(best.plan))
    if question.arrivals.router == "weighted" and not alone:
        why = "equal replicas have equal weights: requests are assigned at random"
        yield NotModelled(option="--router weighted", why=why)
    if question.arrivals.router != ROUTERS[0] and alone:
        why = "the best plan has one replica, which gets all requests"
        yield NotModelled(option=f"--router {question.arrivals.router}", why=why)
    if question.objective.name == "throughput" and question.job.rate_per_s:
        given = question.arrivals.load.rate_per_s
        option = "arrival times of --trace" if given is None else f"--rate {given:g}"
        yield NotModelled(option=option, why=LEAST_RATE.format(format_rate(question.job.rate_per_s)))
    asked, ran = question.requests, best.detail.requests
    if asked is not None and asked < ran:
        why = f"{ran:,} were simulated, which the plan needs to reach a steady state and a clear verdict"
        yield NotModelled(option=f"--requests {asked}", why=why)
    if asked is not None and asked > ran and not question.arrivals.load.trace:
        yield NotModelled(option=f"--requests {asked}", why=f"at most {MOST_REQUESTS:,} are simulated")


def _command(engine: Engine, chip: Chip, plan: Plan) -> str:
    """What starts one replica; empty where the engine does not run on the chip, or nothing here starts it."""
    if plan.pools:
        return ""
    started = None if engine.runs_not_on(chip) else engine.operations
    return shlex.join(started.command(plan)) if started else ""


def _left(engine: Engine, plan: Plan) -> tuple[str, ...]:
    """What one replica's command does not cover: weights to be made first, techniques the engine does not know."""
    if engine.operations is None:
        return (APART,) if plan.disaggregated else ()
    if plan.pools:  # an export has their servers and their router
        return ()
    plain = replace(plan, replicas=1, goals=())
    beyond = beyond_config(plan.strategy.techniques)
    return tuple(engine.operations.not_expressed(replace(plain, strategy=replace(plan.strategy, techniques=beyond))))


@dataclass(slots=True)
class PlanBook:
    """Scores as answers. Intervals are drawn for the best plan, the runner-up and the next cheaper plan."""

    question: PlanTask
    evaluator: ServingEvaluator
    spreads: Spreads = field(init=False)

    def __post_init__(self) -> None:
        rated = self.question.objective.name == "throughput"
        self.spreads = Spreads(self.evaluator, self.question.job.goals, rated)

    def score(self, score: Score, most: float | None = None, *, draw: bool = True) -> PlanScore:
        figures: ServingFigures = score.detail
        job = self.question.job
        usd_h = price(self.question, score.plan)
        # A plan that keeps up produces the offered tokens; the tail of a finite run shows fewer.
        offered = score.rate_per_s * job.output_tokens
        tokens_per_s = figures.output_tokens_per_s if score.grows or score.partial else offered
        usd_per_mtok = usd_h / (tokens_per_s * 3600 / 1e6)
        if tokens_per_s != offered:
            score = replace(score, wh_per_mtok=score.wh_per_mtok * offered / tokens_per_s)
        written = {
            "usd_h": usd_h,
            "usd_per_mtok": usd_per_mtok,
            "wh_per_mtok": score.wh_per_mtok,
            "power_w": figures.power_w,
            "output_tokens_per_s": tokens_per_s,
            "ttft_s": known_times(figures.ttft_s),
            "tpot_s": known_times(figures.tpot_s),
            "e2e_s": known_times(figures.e2e_s),
            "rate_per_s": score.rate_per_s,
            "requests": figures.requests,
        } | ({"max_rate_per_s": most} if most is not None else {})
        return PlanScore(
            plan=_plan(self.question, score, self.evaluator, written),
            feasible=score.meets(job.goals),
            usd_h=usd_h,
            usd_per_mtok=usd_per_mtok,
            wh_per_mtok=score.wh_per_mtok,
            power_w=figures.power_w,
            output_tokens_per_s=tokens_per_s,
            ttft_s=known_times(figures.ttft_s),
            tpot_s=known_times(figures.tpot_s),
            e2e_s=known_times(figures.e2e_s),
            max_rate_per_s=most,
            margin=known_times({goal.name: 1 - score.values_s[goal.name] / goal.limit_s for goal in job.goals}),
            label=label(self.question, score.plan),
            predicted=self._predicted(score, usd_per_mtok, tokens_per_s, draw),
        )

    def _predicted(self, score: Score, usd_per_mtok: float, tokens_per_s: float, draw: bool) -> dict[str, Any]:
        found = self.spreads.draw(score) if draw else self.spreads.known.get(score.plan)
        if found is None:
            return {}
        behind = found.tokens if score.grows or score.partial else None
        return found.of(score.detail) | {
            **_made(tokens_per_s, usd_per_mtok, found.rate if found.rate is not None else behind),
            **({"rate_per_s": estimate(score.rate_per_s, found.rate)} if found.rate is not None else {}),
            "wh_per_mtok": estimate(score.wh_per_mtok, found.power),
            "power_w": estimate(score.detail.power_w, found.power),
        }

    def confirmed(self, score: Score) -> Score | None:
        return confirmed(score, self.evaluator, self.question.job)

    def facts(self, scored: PlanScore) -> dict[str, Any]:
        """The figures of a plan that is listed next to the best."""
        return {
            "label": scored.label,
            "usd_h": scored.usd_h,
            "plan": plan_to_dict(scored.plan),
            "ttft_s": scored.ttft_s,
            "tpot_s": scored.tpot_s,
            "e2e_s": scored.e2e_s,
            "margin": scored.margin,
            "predicted": scored.predicted,
        }


def _made(tokens_per_s: float, usd_per_mtok: float, factors: Floats | None) -> dict[str, Estimate]:
    """Tokens per second and dollars for a million of them; exact where the load decides how many there are."""
    if factors is None:
        tokens = Estimate.exact(tokens_per_s, "the requested rate")
        return {
            "output_tokens_per_s": tokens,
            "usd_per_mtok": Estimate.exact(usd_per_mtok, "the requested rate, at the price of the chips"),
        }
    return {
        "output_tokens_per_s": estimate(tokens_per_s, factors),
        "usd_per_mtok": estimate(usd_per_mtok, 1 / factors),
    }


def price(question: PlanTask, plan: Candidate) -> float:
    """Dollars per hour of all its chips; nothing for those without a price."""
    return sum(pool.chips * question.chip(pool.family.chip).price_usd_h for _, pool in pools_of(plan))


def _plan(question: PlanTask, score: Score, evaluator: ServingEvaluator, predicted: dict[str, Any]) -> Plan:
    drawn = planned_load(question, score.rate_per_s, score.detail.requests)
    pools = tuple(pool_of_plan(question, role, pool, evaluator) for role, pool in pools_of(score.plan))
    return Plan.of_pools(
        pools,
        model=question.reference,
        router=question.arrivals.router,
        kv_transfer=question.kv_transfer if len(pools) > 1 else WHOLE,
        load=drawn,
        goals=question.job.goals,
        predicted=predicted,
    )


def planned_load(question: PlanTask, rate_per_s: float, requests: int) -> ServingLoad:
    """The load that a plan is judged by."""
    load = question.arrivals.load
    return replace(
        load,
        rate_per_s=load.rate_per_s if question.objective.name != "throughput" else rate_per_s,
        requests=load.requests if load.trace else max(load.requests, requests),
    )


def pool_of_plan(question: PlanTask, role: str, plan: Candidate, evaluator: ServingEvaluator) -> PlanPool:
    """Equal replicas as a pool of a plan that can be written down."""
    family, replica = plan.family, evaluator.replicas[plan.family]
    pool = replica.deployment.pool
    return PlanPool(
        role=role,
        chip=pool.chip.reference,
        per_node=pool.unusual_node_size,
        power_limit_w=pool.power_limit_w,
        replicas=plan.replicas,
        strategy=Strategy(tp=family.tp, pp=family.pp, dp=family.dp, ep=family.ep, techniques=question.techniques),
        dtype=family.dtype,
        kv_dtype=question.kv_dtype,
        engine=EngineChoice(name=replica.engine.name, version=replica.engine.version, settings=replica.settings),
    )


def _front(book: PlanBook, best: Score, chosen: PlanScore, met: list[Score]) -> list[PlanScore]:
    """Plans that met their goals and that none beats in price and in the times the goals name (else their p90)."""
    named = {goal.metric: goal.statistic for goal in book.question.job.goals}

    def figures(score: Score) -> tuple[float, ...]:
        if book.question.objective.name == "throughput":
            return (score.plan.usd_h, -score.rate_per_s)
        times = (score.detail.ttft_s[named.get("ttft", "p90")], score.detail.tpot_s[named.get("tpot", "p90")])
        return (score.plan.usd_h, *(0.0 if math.isnan(seconds) else seconds for seconds in times))

    rated = book.question.objective.name == "throughput"
    front = pareto([best, *met], figures)
    while not rated:  # of those that only their samples let in, others take the place
        held = {score.plan: score if score is best else book.confirmed(score) for score in front}
        if all(held.values()):
            front = [score for score in held.values() if score is not None]
            break
        met = [score for score in met if held.get(score.plan, score) is not None]
        front = pareto([best, *met], figures)
    return [chosen if s is best else book.score(s, draw=False) for s in front]


def _runner_up(book: PlanBook, best: Score, other: Score | None) -> dict[str, Any]:
    """The best other plan that meets the goals, and what it costs and buys."""
    if other is None:
        whole = book.question.objective.name == "throughput"
        return {"why": "no other plan on all chips of a pool meets the goals" if whole else NO_OTHER}
    why = why_second(book.question.objective.name, best, other)
    same = (other.plan.family.shape, other.plan.replicas) == (best.plan.family.shape, best.plan.replicas)
    told = {"why": f"{why}; only step budgets differ" if same else why, "only_budgets": same}
    return book.facts(book.score(other)) | told


def _alternative(book: PlanBook, found: SearchResult, best: Score, met: list[Score]) -> dict[str, Any]:
    """The best plan of another shape, where the runner-up is of the best's own."""
    if found.runner_up is None or found.runner_up.plan.family.shape != best.plan.family.shape:
        return {}
    aim, job = book.question.objective, book.question.job
    if aim.name == "throughput":
        other = other_shape_by_rate(found, best, book.evaluator, aim, job)
    else:
        other = other_shape(met, best, aim, book.evaluator, job)
    if other is None:
        return {}
    return book.facts(book.score(other)) | {"why": why_second(aim.name, best, other)}


def _next_cheaper(book: PlanBook, found: SearchResult, other: Neighbour | None) -> dict[str, Any]:
    """The cheaper plan that comes nearest to the goals, and what it misses."""
    if other is None:
        return {"why": "no cheaper plan fits the model"}
    plan, job = other.plan, book.question.job
    if other.score is None:
        usd_h = price(book.question, plan)
        why = why_bounded(plan, found.bounds[plan.family], job)
        return {"label": label(book.question, plan), "usd_h": usd_h, "why": why}
    # What falls behind has no figures of its own: they grow with the length of the load.
    drawn = not other.score.grows and other.score.settled
    return book.facts(book.score(other.score, draw=drawn)) | {"why": why_missed(other.score, job)}


def _near_ties(book: PlanBook, best: Score, met: list[Score]) -> Iterable[dict[str, Any]]:
    """Plans of other shapes that cost hardly more and buy something, cheapest first."""
    if book.question.objective.name != "cost":
        return
    seen = {best.plan.family.shape}
    for score in sorted(met, key=lambda score: book.question.objective.key(score, book.question.job)):
        if score.plan.usd_h > NEAR_TIE * best.plan.usd_h or score.plan.family.shape in seen:
            continue
        seen.add(score.plan.family.shape)
        full = book.confirmed(score)
        bought = what_it_buys(best, full) if full is not None else ""
        if full is not None and bought:
            yield book.facts(book.score(full, draw=False)) | {"buys": bought}


def known_times(times: Any) -> dict[str, float]:
    """Statistics without those nobody has (JSON has no NaN)."""
    return {name: value for name, value in times.items() if not math.isnan(value)}
