"""What becomes of the best plan if an input is otherwise: how far it still meets the goals, and what comes beyond.

One input is changed and all others stay. The border is found on the full load, to a few percent, as the highest rate
is; the plan beyond it is that of a search a little further. Prices change no run: a plan's price is a straight line in
the price of a chip, and the cheapest of all plans at the place where two lines cross says whether a third lies below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gnomon.errors import GnomonError
from gnomon.planning.serving.disaggregated import pools_of
from gnomon.planning.serving.found import Best, found_plan, name_of, plans_of, usd_h_of
from gnomon.planning.serving.mixed import ThinnedEvaluator
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.searched import alike_evaluator
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Candidate, Level
from gnomon.search.rate import FULL_TOLERANCE, highest
from gnomon.spec import NotModelled
from gnomon.spec.answers import PlanReport
from gnomon.spec.answers.serving import OtherPlan, Sensitivity
from gnomon.spec.plan import AGGREGATED

MOST_TIMES = 4.0
"""How many times what it is now an input is tried at."""
STEPS = 8
"""How often the next plan is looked for a little further, where the same plan is still the best."""
NO_RANGE = "the plan is for the highest rate that meets the goals, which leaves no range of it"
NOTHING_ELSE = "no plan on this fleet meets the goals there"
NOT_REACHED = "was not looked for"
CROSSINGS = 8
"""Plans that are tried at most for the one that becomes cheaper first."""


@dataclass(frozen=True, slots=True)
class Changed:
    """An input of a task, and the task where it is so many times what it is now."""

    name: str
    now: float
    at: Callable[[float], PlanTask]
    grows: bool = True
    """Whether more of it is harder; else less of it is."""


def with_sensitivity(task: PlanTask, answer: PlanReport, best: Best) -> PlanReport:
    """The answer with what becomes of its best plan; a plan for the highest rate has no room to be off by."""
    if task.objective.name == "throughput":
        listed = NotModelled(option="--sensitivity", why=NO_RANGE)
        return replace(answer, not_modelled=(*answer.not_modelled, listed))
    plain = replace(task, sensitivity=False, by_rate=False)
    loads = [_border(plain, each, best, answer) for each in _inputs(plain, best)]
    prices = list(_prices(plain, best)) if task.objective.name == "cost" else []
    return replace(answer, sensitivity=(*loads, *prices))


def _inputs(task: PlanTask, best: Best) -> Iterator[Changed]:
    """The inputs that act on a plan."""
    arrivals, whole = task.arrivals, task.arrivals.whole
    load, rate = arrivals.load, task.job.rate_per_s

    def lengths(**other: float) -> PlanTask:
        return replace(task, load=replace(task.load, lengths=replace(task.load.lengths, **other)))

    def at_rate(times: float) -> PlanTask:
        return replace(task, load=replace(task.load, load=replace(load, rate_per_s=times * rate)))

    own = float(whole.unshared_tokens.mean())
    shared = 1 - own / float(whole.input_tokens.mean())
    yield Changed("rate", rate, at_rate)
    if load.turns == 1:  # a turn of a session is part of the prompts after it
        name = "unshared input" if shared > 0 else "input length"
        yield Changed(name, own, lambda times: lengths(input=times))
        yield Changed("output length", float(whole.output_tokens.mean()), lambda times: lengths(output=times))
    if whole.prefixes is not None and shared > 0:
        yield Changed("shared prompts", shared, lambda times: lengths(shared=times), grows=False)
    accepted = _accepted(task, best)
    if accepted > 0:
        yield Changed("draft acceptance", accepted, lambda times: replace(task, accepted=times), grows=False)


def _accepted(task: PlanTask, best: Best) -> float:
    """The share of a first draft that is accepted; 0 without drafts."""
    family = plans_of(best)[-1].family
    limits = Replicas(task.setup, [family], task.arrivals.longest)[family].limits
    return sum(weight * by[0] for weight, by in limits.draft_shares if by) if limits.drafts else 0.0


def _border(task: PlanTask, changed: Changed, best: Best, answer: PlanReport) -> Sensitivity:
    """How far a plan meets the goals as an input changes, and the best plan beyond. What gets harder as there is less
    of it goes down from 1 to nothing."""

    def times(place: float) -> float:
        return place if changed.grows else 2.0 - place

    def room(place: float) -> float:
        return _room(changed.at(times(place)), best)

    most = MOST_TIMES if changed.grows else 2.0
    if changed.name == "rate" and answer.best.max_rate_per_s is not None:
        border = max(1.0, answer.best.max_rate_per_s / changed.now)
    elif room(most) >= 0:
        return _entry(changed.name, changed.now, times(most), OtherPlan(why=NOT_REACHED), reached=False)
    else:
        border = highest(room, 1.0, most, FULL_TOLERANCE)
    held, found = _beyond(changed, times, border, most, best)
    return _entry(changed.name, changed.now, times(border if changed.name == "rate" else held), found)


def _entry(name: str, now: float, factor: float, beyond: OtherPlan, *, reached: bool = True) -> Sensitivity:
    """`reached` where there is an end to what the plan holds."""
    return Sensitivity(input=name, now=now, holds_to=factor * now if reached else None, factor=factor, next=beyond)


def _room(task: PlanTask, best: Best) -> float:
    """What a plan leaves of the goals under a task's load; minus infinity where a request has no room."""
    plans = plans_of(best)
    families = [pool.family for plan in plans for _, pool in pools_of(plan)]
    replicas = Replicas(task.setup, families, task.arrivals.longest)
    if any(replicas.find(family) is None for family in families):
        return -math.inf
    evaluator, goals, rate = alike_evaluator(task, replicas), task.goals, task.job.rate_per_s
    if isinstance(best, Candidate):
        return evaluator.evaluate(best, rate, Level.FULL).sure_room(goals)
    thinned = ThinnedEvaluator(evaluator, rate)
    shares = [(pool.plan.family, rate * pool.weight / best.most_per_s) for pool in best.pools]
    alone = (
        thinned.evaluate(Candidate(family=family, replicas=1), share, Level.FULL).sure_room(goals)
        for family, share in shares
    )
    return min(alone)


def _beyond(
    changed: Changed, times: Callable[[float], float], border: float, most: float, best: Best
) -> tuple[float, OtherPlan]:
    """The best plan a little beyond the border of another, and that border: a search, whose verdicts are surer, may
    find the same plan to be the best a little further."""
    for _ in range(STEPS):
        place = min(most, border * (1 + FULL_TOLERANCE))
        task = changed.at(times(place))
        other = best_of(task)
        if other is None:
            return border, OtherPlan(why=NOTHING_ELSE)
        if name_of(task, other) != name_of(task, best):
            return border, _other(task, other)
        border = place
        if place >= most:
            break
    return border, OtherPlan(why=NOT_REACHED)


def best_of(task: PlanTask) -> Best | None:
    """The best plan of a task; None where no plan meets the goals, or a request has no room."""
    try:
        return found_plan(task).best
    except GnomonError:
        return None


def _other(task: PlanTask, best: Best) -> OtherPlan:
    return OtherPlan(label=name_of(task, best), usd_h=usd_h_of(task, best))


def _prices(task: PlanTask, best: Best) -> Iterator[Sensitivity]:
    """For each kind of chip, the price at which another plan becomes cheaper: a higher one of chips that the plan has,
    a lower one of others."""
    if len(task.fleet.pools) < 2:
        return
    for pool in task.fleet.pools:
        now = pool.chip.price_usd_h
        if now <= 0:
            continue
        factor, other = _crossing(task, best, pool.chip.name)
        name = f"price of {pool.chip.short}"
        if other is None:
            which = "without" if _chips(best, pool.chip.name) else "with"
            yield _entry(name, now, 1.0, OtherPlan(why=f"no plan {which} them meets the goals"), reached=False)
        else:
            yield _entry(name, now, factor, _other(_priced(task, pool.chip.name, factor), other))


def _crossing(task: PlanTask, best: Best, chip: str) -> tuple[float, Best | None]:
    """Times the price of a chip from which on another plan is as cheap, and that plan. First against the best plan
    without the chip, or with no other; then at the crossing of the two, until none is cheaper there."""
    used = _chips(best, chip)
    kept = tuple(pool for pool in task.fleet.pools if (pool.chip.name == chip) != bool(used))
    other = best_of(replace(task, fleet=replace(task.fleet, pools=kept)))
    if other is None:
        return 1.0, None
    factor = _equal(task, best, other, chip)
    assert factor is not None  # one of the two has none of them
    for _ in range(CROSSINGS if task.pools != AGGREGATED else 0):
        at = _priced(task, chip, factor)
        found = best_of(at)
        if found is None or usd_h_of(at, found) >= usd_h_of(at, best) * (1 - 1e-9):
            break
        nearer = _equal(task, best, found, chip)
        if nearer is None:
            break  # no price of the chip decides between them
        other, factor = found, nearer
    return factor, other


def _equal(task: PlanTask, one: Best, other: Best, chip: str) -> float | None:
    """Times the price of a chip at which two plans cost the same; None where they have as many of it, so that their
    prices differ by the same at any price of it."""
    more = _chips(one, chip) - _chips(other, chip)
    if not more:
        return None
    each = task.chip(chip).price_usd_h
    rest = [usd_h_of(task, plan) - _chips(plan, chip) * each for plan in (one, other)]
    return (rest[1] - rest[0]) / (each * more)


def _chips(best: Best, chip: str) -> int:
    """How many of a chip a plan has."""
    return sum(pool.chips for plan in plans_of(best) for _, pool in pools_of(plan) if pool.family.chip == chip)


def _priced(task: PlanTask, chip: str, times: float) -> PlanTask:
    pools = tuple(
        replace(pool, chip=replace(pool.chip, price_usd_h=times * pool.chip.price_usd_h))
        if pool.chip.name == chip
        else pool
        for pool in task.fleet.pools
    )
    return replace(task, fleet=replace(task.fleet, pools=pools))
