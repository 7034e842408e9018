"""What makes one plan better than another, and how little of a family must run to know its best plan.

Each objective has a key (lower is better; the first figure counts first), a bound on the key that no
plan of a family can beat, and a way to find a family's best plan, or to see that it cannot beat the best
so far. They rely on the two laws of `Evaluator`; latency also on more replicas being no slower, energy on
fewer replicas using no more of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gnomon.errors import unknown_name
from gnomon.search.base import Bounds, Candidate, Key, PlanFamily, Score, share_of
from gnomon.search.rate import TOLERANCE, fewest, highest, lowered, raised
from gnomon.spec import Goal

NEVER = 1 << 40
"""Replicas that no fleet has."""
Trial = Callable[[Candidate, float], Score]
HEADROOM_STEP = 0.02
"""Plans whose figures differ by less than this share of the limit are equally good; the default settings win."""
TIGHT_SHARE = 0.9
"""Share of a limit beyond which a plan gives way to a roomier one of the same price: predictions are not that sure."""
LATENCY_STEP = 0.01
EQUAL_STEP = 0.05
"""Of plans that have as much headroom, the faster wins where it is by about this share; else the default settings."""
LEAST_SHARE = 1e-3
"""Of the most a plan could serve: where it cannot meet its goals even at this rate, it never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchJob:
    """What is asked for. `rate_per_s` is 0 where the load has no rate of its own."""

    goals: tuple[Goal, ...]
    rate_per_s: float
    output_tokens: float
    """Mean output of a request."""

    def replicas(self, bounds: Bounds) -> int:
        """The fewest replicas that can keep up with the load; more than there ever are where none can."""
        if self.rate_per_s > bounds.most_per_s:
            return NEVER
        return max(1, math.ceil(self.rate_per_s / bounds.rate_per_s))


class Objective(Protocol):
    name: str

    def key(self, score: Score, job: SearchJob) -> Key: ...
    def bound(self, family: PlanFamily, bounds: Bounds, job: SearchJob) -> Key: ...
    def best_of(
        self, family: PlanFamily, bounds: Bounds, job: SearchJob, best: Score | None, run: Trial
    ) -> Score | None: ...
    def confirm(self, best: Score, job: SearchJob, run: Trial) -> Score:
        """The winner on the full load; it is out if it misses its goals there."""

    def as_promised(self, full: Score, best: Score, job: SearchJob) -> bool:
        """Whether the winner is on the full load what it was on the sample; if not, others may be better."""


def _rank(family: PlanFamily, values_s: Mapping[str, float], load_share: float, e2e_s: float, job: SearchJob) -> Key:
    """Among plans of one price: not tight, the preferred number format, the most headroom under the worst limit, then
    under all, the least time of a request, the order of the space. The load a plan could keep up with is a
    limit like its goals."""
    shares = [share_of(values_s[goal.name], goal.limit_s) for goal in job.goals] + [load_share]
    steps = [math.ceil(share / HEADROOM_STEP - 1e-9) for share in shares]
    return (
        max(shares) > TIGHT_SHARE,
        family.dtype_rank,
        max(steps),
        sum(steps),
        _step(e2e_s, EQUAL_STEP),
        family.order,
    )


def _step(seconds: float, share: float) -> int:
    """Times that differ by less than a share, or a little more, are on one step."""
    return math.floor(math.log(max(seconds, 1e-12)) / math.log(1 + share))


class _AtGivenRate:
    def as_promised(self, full: Score, best: Score, job: SearchJob) -> bool:
        return True

    def confirm(self, best: Score, job: SearchJob, run: Trial) -> Score:
        return run(best.plan, job.rate_per_s)


class Cost(_AtGivenRate):
    """The lowest price per hour; among equals the preferred number format where it leaves room, then headroom."""

    name = "cost"

    def key(self, score: Score, job: SearchJob) -> Key:
        return (score.plan.usd_h, *_rank(score.plan.family, score.values_s, score.load_share, score.e2e_s, job))

    def as_promised(self, full: Score, best: Score, job: SearchJob) -> bool:
        """The full load must not make a plan tight that its sample left room: another may have some."""
        return self.key(full, job)[:2] <= self.key(best, job)[:2]

    def bound(self, family: PlanFamily, bounds: Bounds, job: SearchJob) -> Key:
        return self._floor(Candidate(family=family, replicas=job.replicas(bounds)), bounds, job)

    def best_of(
        self, family: PlanFamily, bounds: Bounds, job: SearchJob, best: Score | None, run: Trial
    ) -> Score | None:
        """First the most replicas that could still win: where they miss, fewer miss too. With nothing to beat, up from
        the fewest that keep up."""
        least, most = job.replicas(bounds), self._worthwhile(family, bounds, job, best)
        if most < least:
            return None

        def meets(replicas: int) -> bool:
            return run(Candidate(family=family, replicas=replicas), job.rate_per_s).meets(job.goals)

        if best is None:
            replicas = raised(meets, least, most)
            return run(Candidate(family=family, replicas=replicas), job.rate_per_s) if replicas else None
        if not meets(most):
            return None
        if most > least and not meets(most - 1):
            least = most
        return run(Candidate(family=family, replicas=fewest(meets, least, most)), job.rate_per_s)

    def _worthwhile(self, family: PlanFamily, bounds: Bounds, job: SearchJob, best: Score | None) -> int:
        """The most replicas with which the family could still beat the best."""
        if best is None:
            return family.most
        count = max(0, min(family.most, int(family.within(best.plan.usd_h)) + 1))
        while count and self._floor(Candidate(family=family, replicas=count), bounds, job) > self.key(best, job):
            count -= 1
        return count

    def _floor(self, plan: Candidate, bounds: Bounds, job: SearchJob) -> Key:
        """No run of the plan has a key below this."""
        share = plan.load_share(job.rate_per_s, bounds)
        return (plan.usd_h, *_rank(plan.family, bounds.floors_s, share, bounds.e2e_s, job))


class Latency(_AtGivenRate):
    """The least mean time from a request's arrival to its last token, in steps of one percent; among equals the
    cheapest, so that chips that buy nothing stay unused."""

    name = "latency"

    def key(self, score: Score, job: SearchJob) -> Key:
        return (
            _step(score.e2e_s, LATENCY_STEP),
            score.plan.usd_h,
            score.plan.family.dtype_rank,
            score.plan.family.order,
        )

    def bound(self, family: PlanFamily, bounds: Bounds, job: SearchJob) -> Key:
        usd_h = Candidate(family=family, replicas=job.replicas(bounds)).usd_h
        return (_step(bounds.e2e_s, LATENCY_STEP), usd_h, family.dtype_rank, family.order)

    def best_of(
        self, family: PlanFamily, bounds: Bounds, job: SearchJob, best: Score | None, run: Trial
    ) -> Score | None:
        """All replicas are the fastest; then as few as are as fast."""
        fastest = run(Candidate(family=family, replicas=family.most), job.rate_per_s)
        step = _step(fastest.e2e_s, LATENCY_STEP)
        if not fastest.meets(job.goals) or (best and step > _step(best.e2e_s, LATENCY_STEP)):
            return None

        def as_fast(replicas: int) -> bool:
            score = run(Candidate(family=family, replicas=replicas), job.rate_per_s)
            return score.meets(job.goals) and _step(score.e2e_s, LATENCY_STEP) == step

        replicas = fewest(as_fast, job.replicas(bounds), family.most)
        return run(Candidate(family=family, replicas=replicas), job.rate_per_s)


class Energy(_AtGivenRate):
    """The fewest watt-hours per million output tokens; among equals the cheapest."""

    name = "energy"

    def key(self, score: Score, job: SearchJob) -> Key:
        return (score.wh_per_mtok, score.plan.usd_h, score.plan.family.dtype_rank, score.plan.family.order)

    def bound(self, family: PlanFamily, bounds: Bounds, job: SearchJob) -> Key:
        replicas = job.replicas(bounds)
        least = self._least_wh(replicas, bounds, job)
        return (least, Candidate(family=family, replicas=replicas).usd_h, family.dtype_rank, family.order)

    def best_of(
        self, family: PlanFamily, bounds: Bounds, job: SearchJob, best: Score | None, run: Trial
    ) -> Score | None:
        """Up from the fewest replicas in growing strides, as long as they could win, then back to the border."""

        def meets(replicas: int) -> bool:
            return run(Candidate(family=family, replicas=replicas), job.rate_per_s).meets(job.goals)

        least = replicas = job.replicas(bounds)
        while not meets(replicas):
            least = replicas + 1
            if least > family.most or (best and self._least_wh(least, bounds, job) > best.wh_per_mtok):
                return None
            replicas = min(family.most, 2 * replicas)
        return run(Candidate(family=family, replicas=fewest(meets, least, replicas)), job.rate_per_s)

    def _least_wh(self, replicas: int, bounds: Bounds, job: SearchJob) -> float:
        return (replicas * bounds.watts + bounds.fixed_watts) / (job.rate_per_s * job.output_tokens) * 1e6 / 3600


class Throughput:
    """The highest rate within the goals on all chips of a pool; among equals the cheapest."""

    name = "throughput"

    def key(self, score: Score, job: SearchJob) -> Key:
        return (-score.rate_per_s, score.plan.usd_h, score.plan.family.dtype_rank, score.plan.family.order)

    def bound(self, family: PlanFamily, bounds: Bounds, job: SearchJob) -> Key:
        whole = Candidate(family=family, replicas=family.most)
        return (-whole.most_per_s(bounds), whole.usd_h, family.dtype_rank, family.order)

    def best_of(
        self, family: PlanFamily, bounds: Bounds, job: SearchJob, best: Score | None, run: Trial
    ) -> Score | None:
        """Only a rate that beats the best by more than the search's tolerance is worth finding."""
        plan = Candidate(family=family, replicas=family.most)
        beyond = plan.most_per_s(bounds)
        least = best.rate_per_s * (1 + TOLERANCE) if best else max(job.rate_per_s, LEAST_SHARE * beyond)
        if least > beyond or not run(plan, least).meets(job.goals):
            return None
        return run(plan, highest(lambda rate: run(plan, rate).room(job.goals), least, beyond))

    def as_promised(self, full: Score, best: Score, job: SearchJob) -> bool:
        return full.rate_per_s >= best.rate_per_s

    def confirm(self, best: Score, job: SearchJob, run: Trial) -> Score:
        """A rate that a sample allowed and the full load does not is lowered until it holds."""
        least = max(job.rate_per_s, LEAST_SHARE * best.rate_per_s)
        rate = lowered(lambda rate: run(best.plan, rate).sure_room(job.goals), best.rate_per_s, least)
        return run(best.plan, least if rate is None else rate)


OBJECTIVES: dict[str, Objective] = {o.name: o for o in (Cost(), Throughput(), Latency(), Energy())}


def objective(name: str) -> Objective:
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    return OBJECTIVES[name]
