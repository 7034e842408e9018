"""Why no plan keeps to the limits that were asked for, and what would."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gnomon.errors import GnomonError, InputError, NoPlanError
from gnomon.planning.training.infeasible import infeasible
from gnomon.planning.training.objectives import OBJECTIVES, BestPlan, PlanQuery, TrainingObjective
from gnomon.planning.training.runs import Limits, Runs
from gnomon.spec.questions.objectives import CHEAPEST, FASTEST
from gnomon.units import DAY_S, format_duration, format_money, format_short_count

DEADLINE, BUDGET, CLUSTER = "--deadline", "--budget", "--cluster"


def check_prices(task: PlanQuery, objective: TrainingObjective) -> None:
    """Raise InputError where money decides and a chip has no price."""
    decides = objective.name == CHEAPEST or math.isfinite(task.limits.budget_usd)
    for site in task.sites if decides else ():
        if not site.bound.pool.chip.price_usd_h:
            hint = "Write the chip to a file with its price_usd_h: gnomon chips new."
            raise InputError(f"the price of {site.bound.pool.chip.name} is not known", where=CLUSTER, hint=hint)


def no_plan(task: PlanQuery, objective: TrainingObjective) -> GnomonError:
    """No plan fits, or none keeps the limits: then the fastest run, or the cheapest, says what would be enough."""
    fast = _without(task, FASTEST)
    if fast is None or not task.limits.any:
        smallest = min(task.sites, key=lambda one: one.bound.model.parameters)
        return infeasible(task.searches(smallest)[0].lean)
    runs = _runs(fast, task)
    if objective.sets_tokens:
        step = f"a step takes {format_duration(float(runs.step_s[0]))} and {format_money(float(runs.step_usd[0]))}"
        return NoPlanError(f"no run of a single step keeps the limits: {step}", where=_where(task), hint="Raise them.")
    late = float(runs.wall_s[0]) > task.limits.deadline_s
    nearest = fast if late else _without(task, CHEAPEST, task.limits.deadline_s) or fast
    found = _runs(nearest, task)
    wall, cost = float(found.wall_s[0]), float(found.cost_usd[0])
    kept = " and ".join(_limits(task.limits))
    message = (
        f"no plan trains {format_short_count(found.tokens or 0)} tokens within {kept}: the "
        f"{'fastest' if late else 'cheapest'} ({nearest.chosen.best.label} on {nearest.site.bound.pool.words}) takes "
        f"{format_duration(wall)} and {format_money(cost)}"
    )
    over = " and ".join(_enough(task.limits, wall, cost))
    told = {"label": nearest.chosen.best.label, "cluster": nearest.site.bound.pool.words, "days": wall / DAY_S}
    return NoPlanError(
        message, where=DEADLINE if late else BUDGET, hint=f"Give {over}, more chips or fewer tokens.",
        nearest=told | {"cost_usd": cost},
    )  # fmt: skip


def _without(task: PlanQuery, name: str, deadline: float = math.inf) -> BestPlan | None:
    """The best plan for another objective, at no more than a deadline."""
    return OBJECTIVES[name].choose(replace(task, limits=Limits(deadline_s=deadline)))


def _runs(outcome: BestPlan, task: PlanQuery) -> Runs:
    best = outcome.chosen.best
    return OBJECTIVES[FASTEST].run(best.search, best.row, outcome.site, task.limits)


def _where(task: PlanQuery) -> str:
    return BUDGET if math.isfinite(task.limits.budget_usd) else DEADLINE


def _limits(limits: Limits) -> Iterator[str]:
    if math.isfinite(limits.deadline_s):
        yield format_duration(limits.deadline_s)
    if math.isfinite(limits.budget_usd):
        yield format_money(limits.budget_usd)


def _enough(limits: Limits, wall_s: float, cost_usd: float) -> Iterator[str]:
    """Limits that this run keeps, of those that it does not."""
    if wall_s > limits.deadline_s:
        yield f"{DEADLINE} {_up(wall_s / 3600)}h"
    if cost_usd > limits.budget_usd:
        yield f"{BUDGET} {_up(cost_usd)}"


def _up(value: float) -> Any:
    """Three digits, rounded up."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 1.0
    return f"{math.ceil(value / scale) * scale:.15g}"
