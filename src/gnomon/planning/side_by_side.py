"""Plans and answers side by side: what differs, their figures, and the load or job that plans share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gnomon.errors import InputError
from gnomon.spec import Plan, ServingLoad, TrainingLoad
from gnomon.spec.key_figures import KEY_FIGURES, SERVING_PLAN, TRAINING_PLAN, KeyFigure
from gnomon.spec.plan_dict import plan_to_dict, pool_to_dict
from gnomon.spec.questions.plans import SharedLoadQuestion
from gnomon.spec.side_by_side import SideBySide

COMPARABLE = ("predict", "fit", "simulate serve", "try")
"""Commands whose answers are compared by the figures they have."""
NOT_COMPARED = ("schema", "id", "load", "goals", "predicted")
"""Fields of a plan that are not what it does."""
POOL_FIELDS = ("chip", "per_node", "power_limit_w", "replicas", "strategy", "dtype", "kv_dtype", "engine")
"""Fields of a plan that are those of its only pool."""


def check_kinds(sides: Sequence[tuple[str, str]]) -> None:
    """Refuse answers, by name and command, that are not all of one command that is compared."""
    _, first = sides[0]
    for name, kind in sides:
        if kind not in COMPARABLE:
            known = f"Known: plans, and answers of {', '.join(COMPARABLE)}."
            what = f"is an answer of `gnomon {kind}`" if kind else "is not an answer of Gnomon"
            raise InputError(f"{what}, which is not compared", where=name, hint=known)
        if kind != first:
            message = f"is an answer of `gnomon {kind}`, and the first is of `gnomon {first}`"
            raise InputError(message, where=name, hint="Compare answers of one command, or plans.")


def check_work(names: Sequence[str], plans: Sequence[Plan]) -> None:
    """Refuse plans of which some train and some serve."""
    for name, plan in zip(names, plans, strict=True):
        if plan.trains != plans[0].trains:
            one, other = ("training", "serving") if plan.trains else ("serving", "training")
            hint = "Compare plans of serving with each other, and plans of training."
            raise InputError(f"is a {one} plan, and the first is a {other} plan", where=name, hint=hint)


def shared_work(name: str, plan: Plan, question: SharedLoadQuestion) -> ServingLoad | TrainingLoad:
    """What all plans do: the first plan's training job, or the load that was given, or the first plan's."""
    if not plan.trains:
        return _shared_load(name, plan, question)
    if question.load:
        hint = "Leave it out: all do the first plan's job."
        raise InputError("a training plan has no requests", where=f"--{next(iter(question.load))}", hint=hint)
    assert isinstance(plan.load, TrainingLoad)
    return plan.load


def _shared_load(name: str, plan: Plan, question: SharedLoadQuestion) -> ServingLoad:
    own = plan.load if isinstance(plan.load, ServingLoad) else None
    trace, given = str(question.trace or ""), question.load
    lengths = any(key in given for key in ("trace", "input", "output"))
    if own is None and not lengths:
        hint = "Describe one by --rate, --input and --output, or by --trace."
        raise InputError("the first plan has no load to compare under", where=name, hint=hint)
    if lengths and not trace and not ("input" in given and "output" in given):
        raise InputError("the load has no lengths", where="--input, --output", hint="Give both, or a --trace.")
    base = ServingLoad(rate_per_s=own.rate_per_s if own else None) if lengths or own is None else own
    assert question.rate is None or isinstance(question.rate, float)
    return replace(
        base,
        trace=trace or base.trace,
        rate_per_s=given.get("rate", None if trace else base.rate_per_s),
        input_tokens=given.get("input", base.input_tokens),
        output_tokens=given.get("output", base.output_tokens),
        seed=given.get("seed", base.seed),
        requests=given.get("requests", 0 if trace else base.requests),
    )


def plans_beside(names: Sequence[str], plans: Sequence[Plan], answers: Sequence[Mapping[str, Any]]) -> SideBySide:
    """Plans that do the same work, with the figures of each."""
    kind = TRAINING_PLAN if plans[0].trains else SERVING_PLAN
    written = [plan_to_dict(plan, flat=True) for plan in plans]
    return SideBySide(
        title=f"{len(plans)} {kind}s under one {'job' if plans[0].trains else 'load'}",
        kind=kind,
        names=tuple(names),
        on=written[0]["load"] | written[0].get("goals", {}),
        differs=tuple(differing(_compared(plans, written))),
        rows=tuple(figure_values(KEY_FIGURES[kind], answers)),
        plans=tuple(written),
    )


def _compared(plans: Sequence[Plan], written: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What plans do; where one has several pools, of all plans by pool."""
    found = [{key: one[key] for key in one if key not in NOT_COMPARED} for one in written]
    if not any(plan.pools for plan in plans):
        return found
    return [
        {key: value for key, value in one.items() if key not in (*POOL_FIELDS, "pools")}
        | {"pools": {str(place): pool_to_dict(pool) for place, pool in enumerate(plan.each_pool, 1)}}
        for one, plan in zip(found, plans, strict=True)
    ]


def answers_beside(kind: str, names: Sequence[str], answers: Sequence[Mapping[str, Any]]) -> SideBySide:
    """Answers of one command, as they are kept."""
    return SideBySide(
        title=f"{len(answers)} answers of gnomon {kind}",
        kind=kind,
        names=tuple(names),
        on={},
        differs=tuple(differing([dict(one.get("inputs") or {}) for one in answers])),
        rows=tuple(figure_values(KEY_FIGURES[kind], answers)),
    )


def differing(mappings: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Fields that are not equal in all of some mappings, nested ones by their path."""
    flat = [dict(_flat(one)) for one in mappings]
    for field in dict.fromkeys(name for one in flat for name in one):
        values = [one.get(field) for one in flat]
        if any(value != values[0] for value in values):
            yield {"field": field, "values": values}


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(item, Mapping):
            yield from _flat(item, name)
        else:
            yield name, item


def figure_values(figures: Sequence[KeyFigure], answers: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each figure that some answer has, with all values and their ratios to the first."""
    for figure in figures:
        values = [_with_interval(figure, answer) for answer in answers]
        if all(value is None for value in values):
            continue
        yield {
            **figure.description,
            "values": values,
            "ratios": [_ratio(value, values[0]) for value in values],
        }


def _with_interval(figure: KeyFigure, answer: Mapping[str, Any]) -> Any:
    """The value; a number with its interval where the answer has one, as an estimate or among its bands. A number
    without one has no low and high."""
    value = figure.of(answer)
    if isinstance(value, Mapping):
        edges: dict[str, Any] = {name: value.get(name) for name in ("value", "low", "high")}
        if not all(map(_is_number, edges.values())):
            return None
        return edges if edges["low"] < edges["high"] else {"value": edges["value"]}
    if not _is_number(value):
        return value if isinstance(value, (bool, str)) else None
    bands = (KeyFigure(name="", path=path).of(answer) for path in _spots(figure))
    band = next(filter(None, bands), None)
    low, high = band if isinstance(band, (list, tuple)) and len(band) == 2 else (None, None)
    return {"value": value} | ({"low": low, "high": high} if _is_number(low) and _is_number(high) else {})


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _spots(figure: KeyFigure) -> Iterator[str]:
    """Where an interval may stand: among the bands of the answer, or of the part of it that has the figure."""
    names = figure.path.split(".")
    for depth in range(len(names)):
        place = ".".join([*names[:depth], "bands", *names[depth:]])
        yield from (f"{place}.mean", place)


def _ratio(value: Any, first: Any) -> float | None:
    numbers = [one.get("value") if isinstance(one, Mapping) else None for one in (value, first)]
    return numbers[0] / numbers[1] if None not in numbers and numbers[1] else None
