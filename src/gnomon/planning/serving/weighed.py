"""Techniques and engine options weighed against each other: every combination that is allowed is searched.

The best plan of all combinations wins by the objective; of equally good ones the one that changes quality least, then
the one with the fewest. A combination that an engine, a chip or another choice refuses is left out with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from gnomon.errors import GnomonError
from gnomon.planning.serving.found import FoundPlan, found_plan
from gnomon.planning.serving.searched import formats_of
from gnomon.planning.serving.task import PlanTask
from gnomon.search.best_first import Progress
from gnomon.spec.answers import PlanReport
from gnomon.spec.answers.serving import WeighedTechnique
from gnomon.techniques import SERVING, applied, techniques
from gnomon.units import format_duration, format_money, format_rate

NARROW_KV = "fp8"
NONE = "none"
Planner = Callable[[PlanTask], PlanReport]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeighedChoice:
    """One technique or option."""

    name: str
    lossless: bool
    techniques: tuple[str, ...] = ()
    kv_dtype: str = ""
    on: Mapping[str, Any] = field(default_factory=dict)
    off: Mapping[str, Any] = field(default_factory=dict)
    usual: bool = False
    excludes: tuple[str, ...] = ()
    reject_reason: str = ""


Chosen = tuple[WeighedChoice, ...]


def plan_weighed(task: PlanTask, planner: Planner, progress: Progress | None = None) -> PlanReport:
    """The best plan over all combinations, with what each technique would buy by itself; `progress` is called with the
    combinations searched and those there are."""
    every = list(_choices(task))
    open_to = [choice for choice in every if not choice.reject_reason]
    found: dict[Chosen, FoundPlan] = {}
    refused: dict[Chosen, str] = {}
    each = list(_combinations(open_to))
    for place, chosen in enumerate(each):
        if progress:
            progress(place, len(each))
        try:
            found[chosen] = found_plan(_with(task, open_to, chosen))
        except GnomonError as error:
            refused[chosen] = error.message
    if not found:
        return planner(_with(task, open_to, ()))  # raises what is nearest
    best = _best(found)
    answer = planner(_with(task, open_to, best))
    told = tuple(_told(task, choice, open_to, best, found, refused) for choice in every)
    return replace(
        answer,
        weighed=told,
        axes={**answer.axes, "with": (NONE, *(choice.name for choice in open_to))},
        plans_considered=sum(outcome.considered for outcome in found.values()),
        plans_fit=sum(outcome.fit for outcome in found.values()),
        plans_simulated=sum(outcome.simulated for outcome in found.values()),
    )


def _choices(task: PlanTask) -> Iterator[WeighedChoice]:
    """Serving techniques, the KV cache in fewer bits, and what the engine offers; what was asked for is in every plan
    anyway."""
    given = applied(SERVING, task.techniques).names
    for one in techniques().values():
        if SERVING in one.work and one.searched and one.name not in given:
            why = "" if one.simulated else "a load cannot be simulated with it"
            kept = "precision" not in one.changes
            yield WeighedChoice(
                name=one.name, lossless=kept, techniques=(one.name,), excludes=one.excludes, reject_reason=why
            )
    why = "" if task.kv_dtype != NARROW_KV else "--kv-dtype is given"
    yield WeighedChoice(name=f"{NARROW_KV}-kv", lossless=False, kv_dtype=NARROW_KV, reject_reason=why)
    shares = task.arrivals.whole.prefixes is not None
    for option in task.setup.bound_engine.options_to_weigh(task.engine.settings, task.fleet.pools, shares=shares):
        yield WeighedChoice(
            name=option.name, lossless=option.lossless, on=option.on, off=option.off, usual=option.usual,
            reject_reason=option.reject_reason,
        )  # fmt: skip


def _combinations(choices: list[WeighedChoice]) -> Iterator[Chosen]:
    """Every set of choices that do not exclude each other, the smallest first. What an engine does by itself is left
    out alone, to see what it buys."""
    usual = [choice for choice in choices if choice.usual]
    others = [choice for choice in choices if not choice.usual]
    for size in range(len(others) + 1):
        for chosen in combinations(others, size):
            names = {choice.name for choice in chosen}
            if not any(names & set(choice.excludes) for choice in chosen):
                yield tuple(choice for choice in choices if choice in (*usual, *chosen))
    for off in usual:
        yield tuple(choice for choice in usual if choice is not off)


def _with(task: PlanTask, choices: list[WeighedChoice], chosen: Chosen) -> PlanTask:
    """The task with these choices on and the others off."""
    settings = dict(task.engine.settings)
    for choice in choices:
        for name in choice.on:
            settings.pop(name, None)
        settings |= choice.on if choice in chosen else choice.off
    kv_dtype = next((choice.kv_dtype for choice in chosen if choice.kv_dtype), task.kv_dtype)
    names = (*task.techniques, *(name for choice in chosen for name in choice.techniques))
    found = replace(
        task, weigh=False, techniques=names, kv_dtype=kv_dtype, engine=replace(task.engine, settings=settings),
        chosen=tuple(_told_in_labels(choices, chosen)),
    )  # fmt: skip
    formats_of(found)  # refuses a technique that applies to no plan
    return found


def _told_in_labels(choices: list[WeighedChoice], chosen: Chosen) -> Iterator[str]:
    """Options that are not as the engine has them by itself; techniques and formats have names of their own."""
    for choice in choices:
        if not choice.techniques and not choice.kv_dtype and (choice in chosen) != choice.usual:
            yield f"no {choice.name}" if choice.usual else choice.name


def _best(found: Mapping[Chosen, FoundPlan]) -> Chosen:
    """The best by the objective; what changes quality, or more, has to be better by more than a search's tolerance."""
    ranked = sorted(found, key=lambda chosen: (sum(not choice.lossless for choice in chosen), _unusual(chosen)))
    best = ranked[0]
    for chosen in ranked[1:]:
        if found[chosen].better_than(found[best]):
            best = chosen
    return best


def _unusual(chosen: Chosen) -> int:
    """How far a combination is from what an engine does by itself."""
    return sum(not choice.usual for choice in chosen) - sum(choice.usual for choice in chosen)


def _told(
    task: PlanTask,
    choice: WeighedChoice,
    choices: list[WeighedChoice],
    best: Chosen,
    found: Mapping[Chosen, FoundPlan],
    refused: Mapping[Chosen, str],
) -> WeighedTechnique:
    """What a choice buys by itself, beside a plan that has only what an engine does by itself."""
    usual = tuple(other for other in choices if other.usual)
    without = tuple(other for other in usual if other != choice)
    alone = tuple(other for other in choices if other in without or other == choice)
    known = WeighedTechnique(name=choice.name, lossless=choice.lossless, used=choice in best)
    if choice.reject_reason or alone in refused:
        return {**known, "why": choice.reject_reason or refused[alone]}
    one, plain = found[alone], found.get(without)
    told: WeighedTechnique = {**known, "label": one.label, "usd_h": one.usd_h, "why": _bought(task, one, plain)}
    if task.objective.name == "throughput":
        told["rate_per_s"] = one.rate_per_s
    return told


def _bought(task: PlanTask, one: FoundPlan, plain: FoundPlan | None) -> str:
    """`$2.10/h, $3.29/h without it`, by the figure of the objective."""
    if plain is None:
        return "no plan meets the goals without it"
    pair = [_worth(task, each) for each in (one, plain)]
    if one.better_than(plain):
        return f"{pair[0]}, {pair[1]} without it"
    told = f"{pair[0]}, {pair[1]} without it" if pair[0] != pair[1] else f"{pair[0]} with and without it"
    return f"buys nothing: {told}"


def _worth(task: PlanTask, one: FoundPlan) -> str:
    if task.objective.name == "throughput":
        return format_rate(one.rate_per_s)
    if task.objective.name == "energy":
        return f"{one.worth:,.0f} Wh/Mtok"
    return (
        f"{format_money(one.usd_h)}/h" if task.objective.name == "cost" else f"{format_duration(one.worth)} end to end"
    )
