"""The search: drop what does not fit, bound the rest, run what could still win, best hopes first.

It is exact: as far as the bounds and the laws of `Evaluator` hold, the answer is the plan that running
every plan would have found. The winner of the search is run once more on the full load; where it does not meet its
goals there with 95% confidence, it is out, and the search goes on with what it knows. Plans that would have beaten the
winner and missed their goals on the sample by no more than chance explains are run on the full load too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gnomon.search.base import Bounds, Candidate, Evaluator, Level, PlanFamily, Score, Shape
from gnomon.search.fates import fates, missed_by_bound
from gnomon.search.ledger import Ledger
from gnomon.search.objectives import LEAST_SHARE, OBJECTIVES, Objective, SearchJob
from gnomon.search.rate import FULL_TOLERANCE, TOLERANCE, highest, lowered

ROUGHLY = 1.1
"""Steps of the rate in which a first guess is looked for."""
Progress = Callable[[int, int], None]
"""Called with the plans decided so far and the plans there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The outcome: the best plan on the full load (None where no plan meets the goals) and what was learned."""

    best: Score | None
    runner_up: Score | None
    """The best other plan that meets the goals on the full load; None where there is none."""
    scores: tuple[Score, ...]
    """Every plan that ran, at the rate it was judged by, in the order of the first run."""
    bounds: dict[PlanFamily, Bounds]
    """Families that fit."""
    considered: int
    fit: int
    simulated: int
    """Plans that the search ran, on their sample or on the full load."""
    rejected: dict[str, int]
    """Plans by the reason why they are not the best; with the best they add up to those considered."""


def search(
    families: Iterable[PlanFamily],
    evaluator: Evaluator,
    objective: Objective,
    job: SearchJob,
    *,
    progress: Progress | None = None,
) -> SearchResult:
    """The best plan of all families and all their numbers of replicas."""
    space = list(families)
    considered = sum(family.most for family in space)
    fitting = [family for family in space if evaluator.fits(family)]
    bounds = {family: evaluator.bounds(family) for family in fitting}
    hopeful = [f for f in fitting if missed_by_bound(bounds[f], job.goals) is None]
    hopeful = [f for f in hopeful if job.replicas(bounds[f]) <= f.most]
    hopeful.sort(key=lambda f: objective.bound(f, bounds[f], job))
    ledger = Ledger(evaluator, job)
    rated = objective.name == "throughput"
    best = (_confirmed_rate if rated else _confirmed)(hopeful, bounds, objective, ledger, _Meter(progress, considered))
    runner_up = None if best is None else (_second_rate if rated else _second)(hopeful, bounds, objective, ledger, best)
    return SearchResult(
        best=best,
        runner_up=runner_up,
        scores=ledger.judged(),
        bounds=bounds,
        considered=considered,
        fit=sum(family.most for family in fitting),
        simulated=len(ledger.ran),
        rejected=fates(space, bounds, ledger, best),
    )


def best_rate(
    families: Iterable[PlanFamily], evaluator: Evaluator, job: SearchJob
) -> tuple[Score | None, set[PlanFamily]]:
    """The plan that holds the highest rate within the goals, of families that fit, with all replicas they have, to what
    rates on the full load are known by; and the families that were run for it."""
    aim, space = OBJECTIVES["throughput"], list(families)
    bounds = {family: evaluator.bounds(family) for family in space}
    hopeful = [family for family in space if missed_by_bound(bounds[family], job.goals) is None]
    hopeful.sort(key=lambda family: aim.bound(family, bounds[family], job))
    ledger = Ledger(evaluator, job)
    best = _confirmed_rate(hopeful, bounds, aim, ledger, _Meter(None, 0), FULL_TOLERANCE)
    return best, {plan.family for plan in ledger.ran}


@dataclass(slots=True)
class _Meter:
    report: Progress | None
    total: int
    done: int = 0

    def at(self, share: float) -> None:
        done = int(share * self.total)
        if self.report is not None and done > self.done:
            self.done = done
            self.report(done, self.total)


def _confirmed(
    hopeful: list[PlanFamily],
    bounds: dict[PlanFamily, Bounds],
    objective: Objective,
    ledger: Ledger,
    meter: _Meter,
    found: Score | None = None,
) -> Score | None:
    """The best plan on the full load: no other promises more on its sample. Better than one already `found`, or that
    one."""
    job = ledger.job
    while True:
        best = _best(hopeful, bounds, objective, ledger, meter, found)
        if best is None or best is found:
            break
        if objective.name == "cost" and found is not None and not _could_win(best.plan, found, ledger):
            continue
        full = objective.confirm(best, job, ledger.run_in_full)
        if full.surely_meets(job.goals):
            if found is None or objective.key(full, job) < objective.key(found, job):
                found = full
            if objective.as_promised(full, best, job):
                break
        elif job.rate_per_s:
            ledger.least[best.plan.family] = ledger.more_replicas(best.plan)
        ledger.barred[best.plan] = full
    found = _recovered(found, objective, ledger)
    meter.at(1.0)
    return found


def _confirmed_rate(
    hopeful: list[PlanFamily],
    bounds: dict[PlanFamily, Bounds],
    objective: Objective,
    ledger: Ledger,
    meter: _Meter,
    tolerance: float = TOLERANCE,
) -> Score | None:
    """The plan with the highest rate on the full load, in one pass from the highest bound on: a family has to hold more
    than the best rate known, by a `tolerance`, on its sample and on the full load, before its own highest rate is
    looked for."""
    job, found = ledger.job, None
    seed = _seed(hopeful, bounds, ledger)
    for place, family in enumerate([*seed, *hopeful]):
        if (
            place >= len(seed)
            and found is not None
            and objective.bound(family, bounds[family], job) >= objective.key(found, job)
        ):
            break  # sorted by bound: no later family can do better
        meter.at(place / (len(hopeful) + 1))
        plan = Candidate(family=family, replicas=family.most)
        if found is not None:
            more = found.rate_per_s * (1 + tolerance)
            if more > plan.most_per_s(bounds[family]) or not ledger.promises(plan, more):
                continue
            full = ledger.run_in_full(plan, more)
            if not full.surely_meets(job.goals):
                ledger.barred[plan] = full
                continue
        best = objective.best_of(family, bounds[family], job, found, ledger.run)
        if best is None:
            continue
        full = objective.confirm(best, job, ledger.run_in_full)
        ledger.barred[plan] = full
        if full.surely_meets(job.goals) and (found is None or objective.key(full, job) < objective.key(found, job)):
            found = full
    meter.at(1.0)
    return found


def _seed(hopeful: list[PlanFamily], bounds: dict[PlanFamily, Bounds], ledger: Ledger) -> list[PlanFamily]:
    """The family to begin with, where prefill and decode replicas make bounds of the rate say little: of the first of
    each shape, the one that holds the highest rate on its sample, roughly. It is only a good first guess: all others
    are then tried in order of their bounds."""
    if all(family.prefill is None for family in hopeful):
        return []
    goals = ledger.job.goals
    shapes: dict[Shape, Candidate] = {}
    for family in hopeful:
        shapes.setdefault(family.shape, Candidate(family=family, replicas=family.most))
    best: list[PlanFamily] = []
    rate = 0.0
    for plan in shapes.values():
        beyond = plan.most_per_s(bounds[plan.family])
        least = max(rate * ROUGHLY, ledger.job.rate_per_s, LEAST_SHARE * beyond)

        def room(tried: float, plan: Candidate = plan) -> float:
            return ledger.sample(plan, tried).room(goals)

        if least < beyond and room(least) >= 0:
            best, rate = [plan.family], highest(room, least, beyond, ROUGHLY - 1)
    return best


def _second(
    hopeful: list[PlanFamily], bounds: dict[PlanFamily, Bounds], objective: Objective, ledger: Ledger, best: Score
) -> Score | None:
    """The best plan but one: the search goes on without the best plan and its family, and the best's own family offers
    one replica more or fewer."""
    job, family = ledger.job, best.plan.family
    ledger.barred[best.plan] = best
    decided = [score for score in ledger.barred.values() if score is not best and score.surely_meets(job.goals)]
    found = min(decided, key=lambda score: objective.key(score, job), default=None)
    others = [other for other in hopeful if other != family]
    found = _confirmed(others, bounds, objective, ledger, _Meter(None, 0), found)
    own = [replace(best.plan, replicas=best.plan.replicas + more) for more in (1, -1)]
    for plan in own:
        dearer = objective.name == "cost" and found is not None and plan.usd_h > found.plan.usd_h
        if dearer or not job.replicas(bounds[family]) <= plan.replicas <= family.most:
            continue
        full = ledger.run_in_full(plan, job.rate_per_s) if ledger.run(plan, job.rate_per_s).meets(job.goals) else None
        if full is not None and full.surely_meets(job.goals):
            found = min(
                [found or full, full], key=lambda score: objective.key(_promised(score, objective, ledger), job)
            )
    return found


def _promised(full: Score, objective: Objective, ledger: Ledger) -> Score:
    """What a search ranks a plan by: its sample, unless the full load does not keep what that promised."""
    sample = ledger.sample(full.plan, full.rate_per_s)
    return sample if objective.as_promised(full, sample, ledger.job) else full


def _second_rate(
    hopeful: list[PlanFamily], bounds: dict[PlanFamily, Bounds], objective: Objective, ledger: Ledger, best: Score
) -> Score | None:
    """The family with the highest rate but one on the full load: none holds more than the best, so each is tried at the
    best's rate first, and only where it holds more than those before it."""
    job = ledger.job
    decided = [score for score in ledger.barred.values() if score.plan != best.plan and score.surely_meets(job.goals)]
    found = min(decided, key=lambda score: objective.key(score, job), default=None)
    for family in hopeful:
        plan = Candidate(family=family, replicas=family.most)
        beyond = min(best.rate_per_s, plan.most_per_s(bounds[family]))
        least = found.rate_per_s * (1 + TOLERANCE) if found else max(job.rate_per_s, LEAST_SHARE * beyond)
        if found and least > beyond:
            break  # sorted by bound: no later family can do better
        if plan == best.plan or least > beyond:
            continue

        def room(rate_per_s: float, plan: Candidate = plan) -> float:
            return ledger.sample(plan, rate_per_s).room(job.goals)

        near = family.shape == best.plan.family.shape  # most often as good: what the best holds, it holds
        full = ledger.run_in_full(plan, beyond) if near and ledger.promises(plan, beyond) else None
        if full is None or not full.surely_meets(job.goals):
            if room(least) < 0 or not ledger.run_in_full(plan, least).surely_meets(job.goals):
                continue
            rate = lowered(room, beyond, least, FULL_TOLERANCE)
            full = ledger.run_in_full(plan, confirmed_rate(plan, rate or least, least, ledger.evaluator, job))
        if full.surely_meets(job.goals) and (not found or objective.key(full, job) < objective.key(found, job)):
            found = full
    return found


def _could_win(plan: Candidate, found: Score, ledger: Ledger) -> bool:
    """Whether a family has a plan that meets the goals on the full load for less than the best one known; if not even
    the most replicas that cost less do, none of them does."""
    family = plan.family
    most = min(family.most, math.ceil(family.within(found.plan.usd_h)) - 1)
    if most <= plan.replicas or ledger.enough(replace(plan, replicas=most)):
        return True
    ledger.least[family] = most + 1
    return False


def _recovered(found: Score | None, objective: Objective, ledger: Ledger) -> Score | None:
    """The winner, or a better plan that the sample ruled out by chance."""
    job = ledger.job
    near = [score for score in ledger.seen.values() if score.plan not in ledger.barred and score.nearly(job.goals)]
    for score in sorted(near, key=lambda score: objective.key(score, job)):
        if found is not None and objective.key(score, job) >= objective.key(found, job):
            break
        full = ledger.run_in_full(score.plan, job.rate_per_s)
        if full.surely_meets(job.goals) and (found is None or objective.key(full, job) < objective.key(found, job)):
            found = full
    return found


def _best(
    hopeful: list[PlanFamily],
    bounds: dict[PlanFamily, Bounds],
    objective: Objective,
    ledger: Ledger,
    meter: _Meter,
    found: Score | None,
) -> Score | None:
    """The best on its sample, or what was `found` where none beats that."""
    best, job = found, ledger.job
    for place, family in enumerate(hopeful):
        if best is not None and objective.bound(family, bounds[family], job) >= objective.key(best, job):
            break  # sorted by bound: no later family can do better
        score = objective.best_of(family, bounds[family], job, best, ledger.run)
        if score is not None and (best is None or objective.key(score, job) < objective.key(best, job)):
            best = score
        meter.at((place + 1) / (len(hopeful) + 1))
    return best


def highest_rate(score: Score, evaluator: Evaluator, bounds: Bounds, job: SearchJob) -> float:
    """The highest rate at which a plan that meets its goals still does, on the full load."""
    beyond = score.plan.most_per_s(bounds)

    def room(rate_per_s: float) -> float:
        return evaluator.evaluate(score.plan, rate_per_s, Level.FULL).sure_room(job.goals)

    return highest(room, score.rate_per_s, beyond, FULL_TOLERANCE, known=score.sure_room(job.goals))


def confirmed_rate(plan: Candidate, most: float, held: float, evaluator: Evaluator, job: SearchJob) -> float:
    """A rate that a plan holds on a sample, lowered until it holds it on the full load as well; at the least `held`."""

    def room(rate_per_s: float) -> float:
        if rate_per_s <= held:
            return math.inf
        return evaluator.evaluate(plan, rate_per_s, Level.FULL).sure_room(job.goals)

    return lowered(room, most, held, FULL_TOLERANCE) or held
