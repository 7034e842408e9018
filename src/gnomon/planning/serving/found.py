"""The best plan of a task and what it is worth, without a report."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.errors import NoPlanError
from gnomon.planning.serving.labels import label, pool_label
from gnomon.planning.serving.mixed import MixedPlan, may_be_mixed, search_mixed
from gnomon.planning.serving.report import price
from gnomon.planning.serving.searched import Prepared
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Candidate, search
from gnomon.search.rate import TOLERANCE
from gnomon.spec.plan import AUTO, MIXED

Best = Candidate | MixedPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlan:
    """A best plan."""

    best: Best
    label: str
    usd_h: float
    rate_per_s: float
    worth: float
    """By the objective, lower is better: dollars per hour, seconds, watt-hours, or the rate below zero."""
    rated: bool
    considered: int
    fit: int
    simulated: int

    def better_than(self, other: FoundPlan) -> bool:
        """By more than rates are known by, where it is a rate."""
        if self.rated:
            return self.rate_per_s > other.rate_per_s * (1 + TOLERANCE)
        return self.worth < other.worth * (1 - 1e-9)


def found_plan(task: PlanTask) -> FoundPlan:
    """The best plan of the kinds that a task asks for; raises where none meets the goals."""
    made = Prepared.of(task)
    mixed = _mixed(task, made) if mixes(task) else None
    if task.pools == MIXED and mixed is not None:
        return mixed
    alike = _alike(task, made) if task.pools != MIXED else None
    found = [each for each in (alike, mixed) if each is not None]
    if not found:
        raise NoPlanError(f"no plan on {task.chips} meets the goals", nearest={})
    return min(found, key=lambda each: each.worth)


def mixes(task: PlanTask) -> bool:
    """Whether mixtures of chips are among the plans."""
    return task.pools == MIXED or (task.pools == AUTO and len(task.fleet.pools) > 1 and may_be_mixed(task))


def _alike(task: PlanTask, made: Prepared) -> FoundPlan | None:
    found = search(made.space(), made.alike(), task.objective, task.job)
    score = found.best
    if score is None:
        return None
    by = {"cost": price(task, score.plan), "throughput": -score.rate_per_s, "energy": score.wh_per_mtok}
    return FoundPlan(
        best=score.plan, label=label(task, score.plan), usd_h=price(task, score.plan), rate_per_s=score.rate_per_s,
        worth=by.get(task.objective.name, score.e2e_s), rated=task.objective.name == "throughput",
        considered=found.considered, fit=found.fit, simulated=found.simulated,
    )  # fmt: skip


def _mixed(task: PlanTask, made: Prepared) -> FoundPlan | None:
    looked = made.mixed()
    try:
        found = search_mixed(looked)
    except NoPlanError:
        return None
    rated, usd_h = task.objective.name == "throughput", usd_h_of(task, found)
    return FoundPlan(
        best=found, label=name_of(task, found), usd_h=usd_h, rate_per_s=found.rate_per_s,
        worth=-found.rate_per_s if rated else usd_h, rated=rated,
        considered=looked.considered, fit=looked.fit, simulated=len(looked.tried),
    )  # fmt: skip


def plans_of(best: Best) -> list[Candidate]:
    """Equal replicas, or those of each kind of a mixture."""
    return [best] if isinstance(best, Candidate) else [pool.plan for pool in best.pools]


def usd_h_of(task: PlanTask, best: Best) -> float:
    return sum(price(task, plan) for plan in plans_of(best))


def name_of(task: PlanTask, best: Best) -> str:
    plans = plans_of(best)
    return label(task, plans[0]) if isinstance(best, Candidate) else " + ".join(pool_label(task, p) for p in plans)
