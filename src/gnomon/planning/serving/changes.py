"""What to change in a deployment that runs: one knob, degree or format at a time, each simulated under the load, then
the best plan of a search on the same chips."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnomon.engines import Engine
from gnomon.engines.operations import Operations
from gnomon.errors import DoesNotFitError, GnomonError, InfeasibleError, InputError
from gnomon.graph.dtypes import width
from gnomon.planning.serving.evaluator import MOST_REQUESTS, ServingEvaluator
from gnomon.planning.serving.one_plan import UNSIMULATED, candidate_of
from gnomon.planning.serving.plan import best_on
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.report import PlanBook
from gnomon.planning.serving.searched import LEAST_REQUESTS, TRACE_REQUESTS
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Level, highest_rate
from gnomon.search.best_first import Progress
from gnomon.search.objectives import LEAST_SHARE
from gnomon.search.rate import FULL_TOLERANCE, lowered
from gnomon.spec import MoeFfn, Plan
from gnomon.spec.answers import PlanScore
from gnomon.spec.plan import ROUTERS
from gnomon.spec.tuned import PlanChange, TunedPlan

TaskOf = Callable[[Plan], PlanTask]
"""The load, goals and chips of a plan, resolved."""
LEAST_GAIN = 0.02
"""Share by which a figure has to be better to be called a gain: less is inside the tolerance of the highest rate."""
NARROW = "fp8"
"""The format of eight bits that engines make of wide weights and caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedChange:
    """A plan that differs from the running one in one thing."""

    what: str
    plan: Plan
    freed: str = ""
    """The setting that is given back to the engine."""


def tuned(plan: Plan, task_of: TaskOf, progress: Progress | None = None) -> TunedPlan:
    """The running plan under its load, single changes that help, and the best plan of a search on the same chips."""
    check_simulated(plan)
    task = task_of(plan)
    now = _measured(plan, task)
    proposed = list(_proposed(plan, task))
    found, refused, unfit = [], 0, 0
    for place, one in enumerate(proposed):
        if progress:
            progress(place, len(proposed))
        try:
            found.append((one, _measured(one.plan, task_of(one.plan))))
        except DoesNotFitError:
            unfit += 1
        except InputError:
            refused += 1
    helpful = sorted((pair for pair in found if _helps(pair[1], now)), key=lambda pair: _order(pair[1]))
    best, why = _best(plan, task, {one.freed for one, _ in helpful}, progress)
    started = _engine(task).operations
    return TunedPlan(
        title=task.title.rpartition(":")[0],
        goals=task.goals,
        now=now,
        changes=tuple(_change(one.what, score, now, plan, started) for one, score in helpful),
        best=best,
        best_change=_change("the best plan of a search", best, now, plan, started) if best else None,
        why_no_best=why,
        tried=len(proposed),
        no_benefit=len(found) - len(helpful),
        refused=refused,
        unfit=unfit,
    )


def check_simulated(plan: Plan) -> None:
    """Refuse replicas that no load is simulated on."""
    for name in UNSIMULATED:
        if getattr(plan.strategy, name) > 1:
            message = f"replicas with {name} {getattr(plan.strategy, name)} are not simulated under a load"
            raise InputError(message, where=f"strategy.{name}", hint="`gnomon predict` prices their steps.")


def _engine(task: PlanTask) -> Engine:
    (binding,) = task.bindings.values()
    return binding.engine


def _measured(plan: Plan, task: PlanTask) -> PlanScore:
    """A plan's figures at the rate of the load, and the highest rate at which it meets the goals."""
    arrivals = task.arrivals
    if not arrivals.rate_per_s:
        raise InputError("the load has no rate", where="--rate", hint="Give the requests per second that there are.")
    candidate = candidate_of(plan, task)
    replicas = Replicas(task.setup, [candidate.family], arrivals.longest)
    if replicas.find(candidate.family) is None:
        raise DoesNotFitError(f"a replica has no room for a request of {arrivals.longest:,} tokens")
    count = max(LEAST_REQUESTS, min(arrivals.load.requests or TRACE_REQUESTS, MOST_REQUESTS))
    evaluator = ServingEvaluator(replicas, arrivals, task.goals, dict.fromkeys(Level, count))
    score = evaluator.evaluate(candidate, arrivals.rate_per_s, Level.TO_THE_END)
    bounds = evaluator.bounds(candidate.family)
    if score.meets(task.goals):
        most: float | None = highest_rate(score, evaluator, bounds, task.job)
    else:
        least = LEAST_SHARE * candidate.replicas * bounds.rate_per_s
        most = lowered(
            lambda rate: evaluator.evaluate(candidate, rate, Level.FULL).sure_room(task.goals),
            arrivals.rate_per_s, min(least, arrivals.rate_per_s), FULL_TOLERANCE,
        )  # fmt: skip
    scored = PlanBook(task, evaluator).score(score, most, draw=False)
    return replace(scored, plan=replace(plan, predicted=scored.plan.predicted))


def _proposed(plan: Plan, task: PlanTask) -> Iterator[ProposedChange]:
    yield from _knobs(plan, task)
    yield from _defaults(plan, task)
    yield from _degrees(plan, task)
    yield from _formats(plan, task)
    if plan.replicas > 1 and plan.router == ROUTERS[0]:
        yield ProposedChange(what=f"router {ROUTERS[-1]}", plan=replace(plan, router=ROUTERS[-1]))


def _with(plan: Plan, settings: Mapping[str, Any]) -> Plan:
    return replace(plan, engine=replace(plan.engine, settings=settings))


def _filled(plan: Plan, task: PlanTask, settings: Mapping[str, Any]) -> dict[str, Any]:
    (pool,) = task.fleet.pools
    engine = _engine(task)
    _, given = engine.arranged(plan.strategy, settings)
    return engine.settings(given, task.model, pool)


def _knobs(plan: Plan, task: PlanTask) -> Iterator[ProposedChange]:
    """Every other value of what a search may turn, the engine's default among them."""
    engine, given = _engine(task), plan.engine.settings
    now = _filled(plan, task, given)
    usual = _filled(plan, task, {name: value for name, value in given.items() if name not in _turned(plan, task)})
    for knob in engine.knobs:
        values = knob.tried(now, task.setup.adapters)
        for value in sorted({*values, int(usual[knob.name])} - {now[knob.name]} if values else ()):
            turned = {other.name: int(now[other.name]) for other in engine.knobs} | {knob.name: value}
            if engine.goes_together(turned) and _takes(plan, task, {**given, knob.name: value}):
                yield ProposedChange(what=knob.label.format(value), plan=_with(plan, {**given, knob.name: value}))


def _takes(plan: Plan, task: PlanTask, settings: Mapping[str, Any]) -> bool:
    """Whether the engine takes these settings; not a knob that is given by another name of it."""
    try:
        _filled(plan, task, settings)
    except InputError:
        return False
    return True


def _turned(plan: Plan, task: PlanTask) -> set[str]:
    """Settings that a search turns under this load."""
    now = _filled(plan, task, plan.engine.settings)
    return {knob.name for knob in _engine(task).knobs if knob.tried(now, task.setup.adapters)}


def _defaults(plan: Plan, task: PlanTask) -> Iterator[ProposedChange]:
    """Settings that differ from the engine's defaults, back to them one by one; what sequences need stays."""
    engine, given = _engine(task), dict(plan.engine.settings)
    now = _filled(plan, task, given)
    for name in given:
        if name in _turned(plan, task) or name in engine.settings_for(context=1):
            continue
        rest = {key: value for key, value in given.items() if key != name}
        usual = _filled(plan, task, rest)[name]
        if usual != now[name]:
            shown = str(usual).lower() if isinstance(usual, bool) else usual
            yield ProposedChange(what=f"{name} {shown}, the default", plan=_with(plan, rest), freed=name)


def _degrees(plan: Plan, task: PlanTask) -> Iterator[ProposedChange]:
    """Wider and narrower replicas on the same chips, experts spread or not, and one replica more or less."""
    tp, ep, count = plan.strategy.tp, plan.strategy.ep, plan.replicas
    spread = ep > 1
    shapes = [(2 * tp, count // 2)] if count % 2 == 0 else []
    shapes += [(tp // 2, 2 * count)] if tp % 2 == 0 else []
    for degree, replicas in shapes:
        strategy = replace(plan.strategy, tp=degree, ep=degree if spread else 1)
        what = f"{replicas} x TP {degree}"
        yield ProposedChange(what=what, plan=replace(plan, strategy=strategy, replicas=replicas))
    if tp > 1 and any(isinstance(block.ffn, MoeFfn) for block in task.model.blocks):
        strategy = replace(plan.strategy, ep=1 if spread else tp)
        yield ProposedChange(what=f"EP {strategy.ep}", plan=replace(plan, strategy=strategy))
    for replicas in (count - 1, count + 1):
        if replicas:
            noun = "replica" if replicas == 1 else "replicas"
            yield ProposedChange(what=f"{replicas} {noun}", plan=replace(plan, replicas=replicas))


def _formats(plan: Plan, task: PlanTask) -> Iterator[ProposedChange]:
    """Eight bits for weights that are wide and have no checkpoint of their own, and for the cache."""
    if width(plan.dtype) > width(NARROW) and not plan.checkpoint:
        yield ProposedChange(what=f"{NARROW} weights", plan=replace(plan, dtype=NARROW))
    if plan.kv_dtype != NARROW:
        yield ProposedChange(what=f"{NARROW} KV cache", plan=replace(plan, kv_dtype=NARROW))


def _helps(score: PlanScore, now: PlanScore) -> bool:
    """Cheaper while the goals are met; or, at no higher price, more rate within the goals; or the goals met at all."""
    if score.feasible != now.feasible:
        return score.feasible
    if score.feasible and score.usd_h < now.usd_h * (1 - LEAST_GAIN):
        return True
    dearer = score.usd_h > now.usd_h * (1 + LEAST_GAIN)
    return not dearer and (score.max_rate_per_s or 0.0) > (now.max_rate_per_s or 0.0) * (1 + LEAST_GAIN)


def _order(score: PlanScore) -> tuple[bool, float, float]:
    """Those that meet the goals first, the cheapest of them, then the highest rate."""
    return not score.feasible, score.usd_h, -(score.max_rate_per_s or 0.0)


def _best(plan: Plan, task: PlanTask, freed: set[str], progress: Progress | None) -> tuple[PlanScore | None, str]:
    """The best plan on the same chips, with knobs, freed settings and, where the weights allow it, formats to choose;
    or why there is none."""
    fixed = plan.checkpoint or width(plan.dtype) < width("bf16")
    asked = replace(searched_again(plan, task, freed), dtypes=(plan.dtype,) if fixed else None)
    try:
        return best_on(asked, progress), ""
    except InfeasibleError as error:
        return None, error.message
    except InputError as error:
        return None, str(error)


def searched_again(plan: Plan, task: PlanTask, freed: set[str] | frozenset[str] = frozenset()) -> PlanTask:
    """A plan's task for a search: what a search turns, and settings that are `freed`, are not given any more."""
    free = {*_turned(plan, task), *freed}
    kept = {name: value for name, value in plan.engine.settings.items() if name not in free}
    return replace(task, engine=replace(plan.engine, settings=kept), kv_dtype=plan.kv_dtype or "bf16")


def _change(what: str, score: PlanScore, now: PlanScore, plan: Plan, started: Operations | None) -> PlanChange:
    flags, dropped = _flags(plan, score.plan, started)
    return PlanChange(
        what=what,
        flags=flags,
        dropped=dropped,
        price=score.usd_h / now.usd_h if now.usd_h else math.nan,
        rate=_ratio(score.max_rate_per_s, now.max_rate_per_s),
        score=score,
    )


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _flags(plan: Plan, changed: Plan, started: Operations | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags of one replica's command, and fields of the file it reads, to set and to leave out; none where nothing
    here starts the engine."""
    if started is None:
        return (), ()
    try:
        before, after = ([*_grouped(started.command(one)), *started.file_options(one)] for one in (plan, changed))
    except GnomonError:
        return (), ()
    kept = {text.partition(" ")[0] for text in after}
    return (
        tuple(text for text in after if text not in before),
        tuple(name.rstrip(":") for text in before if (name := text.partition(" ")[0]) not in kept),
    )


def _grouped(words: Sequence[str]) -> list[str]:
    """Flags with their values; the program and its model come first."""
    found: list[str] = []
    for word in words:
        if word.startswith("-") or not found:
            found.append(word)
        else:
            found[-1] = f"{found[-1]} {shlex.quote(word)}"
    return found
