"""Plans or stored answers beside each other: what differs, and what that does to the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnomon.api.export import named_plan
from gnomon.api.simulate_training import report
from gnomon.errors import InputError
from gnomon.load.files import MIB, as_path, is_file, read_json
from gnomon.load.plan import plan_pool
from gnomon.planning.serving.one_plan import plan_under
from gnomon.spec import Plan, ServingLoad, TrainingLoad
from gnomon.spec.answers import Result
from gnomon.spec.key_figures import KEY_FIGURES, SERVING_PLAN, TRAINING_PLAN, KeyFigure
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.spec.side_by_side import SideBySide
from gnomon.store import entry, resolve_plan
from gnomon.units import parse_rate, parse_whole

PLAN = "plan"
PLANNED = (PLAN, "plan serve", "plan train", "simulate train")
"""What is compared by its plan, under one load or doing one job; other answers by the figures they have."""
NO_PART = ("schema", "id", "load", "goals", "predicted")
"""Fields of a plan that are not what it does."""
YAML = (".yaml", ".yml")
MOST_BYTES = 64 * MIB

Compared = str | Path | Plan | Result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of those that are compared: its name, the command it is of, and its answer, if it is one."""

    given: Compared
    name: str
    kind: str
    answer: Mapping[str, Any]

    @property
    def plan(self) -> Plan:
        if isinstance(self.given, Plan):
            return self.given
        if not isinstance(self.given, Result):
            return resolve_plan(self.given)
        found = getattr(getattr(self.given, "best", self.given), "plan", None)
        if not isinstance(found, Plan):
            raise InputError("the answer holds no plan", where=self.name, hint="Give a plan, or a run's id.")
        return found


def compare(
    *plans: Compared,
    trace: str | Path | None = None,
    rate: float | str | None = None,
    input: int | None = None,
    output: int | None = None,
    requests: int | None = None,
    seed: int | None = None,
) -> SideBySide:
    """Two or more plans, or answers of one command, beside each other.

    Each is a file, a run's id, `last`, a plan or an answer. Serving plans are simulated under one load, the one that is
    given or the first plan's, with the first plan's goals; training plans do the first one's job. Answers of one
    command are compared as they are kept. Ratios are to the first.
    """
    if len(plans) < 2:
        raise InputError("there is nothing to compare it with", where="PLAN", hint="Name two or more.")
    sides = [_side(given, place) for place, given in enumerate(plans, 1)]
    asked = {"trace": trace, "rate": rate, "input": input, "output": output, "requests": requests, "seed": seed}
    given_load = {name: value for name, value in asked.items() if value is not None}
    if given_load or any(side.kind in PLANNED for side in sides):
        return _plans(sides, given_load)
    return _answers(sides)


def _side(given: Compared, place: int) -> _Side:
    if isinstance(given, Plan):
        return _Side(given=given, name=given.id or f"plan {place}", kind=PLAN, answer={})
    if isinstance(given, Result):
        found: Mapping[str, Any] = given.to_dict()
        return _Side(given=given, name=f"answer {place}", kind=_kind(found), answer=found)
    path = as_path(given)
    if path.suffix in YAML or (path.suffix != ".json" and is_file(path)):
        return _Side(given=given, name=str(given), kind=PLAN, answer={})
    if path.suffix == ".json":
        found = read_json(path, MOST_BYTES)
        return _Side(given=given, name=str(given), kind=_kind(found), answer=found)
    run = entry(str(given))
    return _Side(given=run.id, name=run.id, kind=_kind(run.payload), answer=run.payload)


def _kind(answer: Mapping[str, Any]) -> str:
    """`simulate serve` of `gnomon.simulate.serve/1`."""
    return str(answer.get("schema", "")).removeprefix("gnomon.").partition("/")[0].replace(".", " ")


def _plans(sides: Sequence[_Side], asked: Mapping[str, Any]) -> SideBySide:
    plans = [side.plan for side in sides]
    for side, plan in zip(sides, plans, strict=True):
        if plan.trains != plans[0].trains:
            one, other = ("trains", "serves") if plan.trains else ("serves", "trains")
            hint = "Compare plans of serving with each other, and plans of training."
            raise InputError(f"the plan {one} a model, and the first one {other} it", where=side.name, hint=hint)
    kind = TRAINING_PLAN if plans[0].trains else SERVING_PLAN
    load = _job(sides[0], plans[0], asked) if plans[0].trains else _load(sides[0], plans[0], asked)
    plans = [replace(plan, load=load, goals=plans[0].goals, predicted={}) for plan in plans]
    answers = []
    for side, plan in zip(sides, plans, strict=True):
        with named_plan(side.name if isinstance(side.given, Plan) else str(side.given)):
            answers.append(_under(plan))
    written = [plan_to_dict(plan) for plan in plans]
    return SideBySide(
        title=f"{len(sides)} {kind}s under one {'job' if plans[0].trains else 'load'}",
        kind=kind,
        names=tuple(side.name for side in sides),
        on=written[0]["load"] | written[0].get("goals", {}),
        differs=tuple(_differs([_parts(one) for one in written])),
        rows=tuple(_rows(KEY_FIGURES[kind], answers)),
        plans=tuple(written),
    )


def _under(plan: Plan) -> dict[str, Any]:
    if isinstance(plan.load, ServingLoad):
        return plan_under(plan, plan.load).to_dict()
    return report(plan, plan_pool(plan)).to_dict()


def _parts(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name not in NO_PART}


def _job(side: _Side, plan: Plan, asked: Mapping[str, Any]) -> TrainingLoad:
    if asked:
        hint = "Leave it out: all do the first plan's job."
        raise InputError("a training plan has no requests", where=f"--{next(iter(asked))}", hint=hint)
    assert isinstance(plan.load, TrainingLoad)
    return plan.load


def _load(side: _Side, plan: Plan, asked: Mapping[str, Any]) -> ServingLoad:
    """The load that was given, or the first plan's; of the latter, what was given instead."""
    own = plan.load if isinstance(plan.load, ServingLoad) else None
    lengths = any(name in asked for name in ("trace", "input", "output"))
    if own is None and not lengths:
        hint = "Describe one by --rate, --input and --output, or by --trace."
        raise InputError("the first plan has no load to compare under", where=side.name, hint=hint)
    base = ServingLoad(rate_per_s=own.rate_per_s if own else None) if lengths or own is None else own
    if lengths and "trace" not in asked and not ("input" in asked and "output" in asked):
        raise InputError("the load has no lengths", where="--input, --output", hint="Give both, or a --trace.")
    trace = asked.get("trace")
    found = replace(
        base,
        trace=str(Path(trace).resolve()) if trace and Path(trace).is_file() else str(trace or base.trace),
        rate_per_s=parse_rate(asked["rate"], "--rate") if "rate" in asked else None if trace else base.rate_per_s,
        input_tokens=parse_whole(asked["input"], "--input") if "input" in asked else base.input_tokens,
        output_tokens=parse_whole(asked["output"], "--output") if "output" in asked else base.output_tokens,
        seed=parse_whole(asked["seed"], "--seed", least=0) if "seed" in asked else base.seed,
    )
    if "requests" in asked:
        return replace(found, requests=parse_whole(asked["requests"], "--requests"))
    return replace(found, requests=0) if trace else found


def _answers(sides: Sequence[_Side]) -> SideBySide:
    first = sides[0]
    for side in sides:
        if side.kind not in KEY_FIGURES:
            known = f"Known: plans, and answers of {', '.join(name for name in KEY_FIGURES if ' plan' not in name)}."
            what = f"is an answer of `gnomon {side.kind}`" if side.kind else "is not an answer of Gnomon"
            raise InputError(f"{what}, which is not compared", where=side.name, hint=known)
        if side.kind != first.kind:
            message = f"is an answer of `gnomon {side.kind}`, and the first is of `gnomon {first.kind}`"
            raise InputError(message, where=side.name, hint="Compare answers of one command, or plans.")
    return SideBySide(
        title=f"{len(sides)} answers of gnomon {first.kind}",
        kind=first.kind,
        names=tuple(side.name for side in sides),
        on={},
        differs=tuple(_differs([dict(side.answer.get("inputs") or {}) for side in sides])),
        rows=tuple(_rows(KEY_FIGURES[first.kind], [side.answer for side in sides])),
    )


def _differs(mappings: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
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


def _rows(figures: Sequence[KeyFigure], answers: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each figure that some answer has, with all values and their ratios to the first."""
    for figure in figures:
        values = [_with_interval(figure, answer) for answer in answers]
        if all(value is None for value in values):
            continue
        yield {
            **figure.told,
            "values": values,
            "ratios": [_ratio(value, values[0]) for value in values],
        }


def _with_interval(figure: KeyFigure, answer: Mapping[str, Any]) -> Any:
    """The value; a number with its interval where the answer has one, as an estimate or among its bands."""
    value = figure.of(answer)
    if isinstance(value, Mapping):
        return {name: value.get(name) for name in ("value", "low", "high")}
    if value is None or isinstance(value, (bool, str)):
        return value
    edges = next(filter(None, (KeyFigure(name="", path=f"bands.{path}").of(answer) for path in _spots(figure))), None)
    low, high = edges if isinstance(edges, (list, tuple)) and len(edges) == 2 else (None, None)
    return {"value": value, "low": value if low is None else low, "high": value if high is None else high}


def _spots(figure: KeyFigure) -> tuple[str, str]:
    return f"{figure.path}.mean", figure.path


def _ratio(value: Any, first: Any) -> float | None:
    numbers = [one.get("value") if isinstance(one, Mapping) else None for one in (value, first)]
    return numbers[0] / numbers[1] if None not in numbers and numbers[1] else None
