"""Plans or stored answers beside each other: what differs, and what that does to the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.api.export import named_plan
from gnomon.api.simulate_training import report
from gnomon.errors import InputError
from gnomon.load.plan import plan_pool
from gnomon.planning.serving.one_plan import plan_under
from gnomon.planning.side_by_side import differing, figure_values
from gnomon.report.answer_shapes import shape_of
from gnomon.report.intact import Each, check
from gnomon.spec import Plan, ServingLoad, TrainingLoad
from gnomon.spec.key_figures import KEY_FIGURES, SERVING_PLAN, TRAINING_PLAN
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.spec.side_by_side import SideBySide
from gnomon.store.compared import PLAN, Compared, ComparedSide, compared_side
from gnomon.units import parse_rate, parse_whole

PLANNED = (PLAN, "plan serve", "plan train", "simulate train")
"""What is compared by its plan, under one load or doing one job; other answers (`KEPT`) by the figures they have."""
KEPT = ("predict", "fit", "simulate serve", "try")
INPUTS = {"inputs": Each(lambda _: "")}
"""What every answer has: what it was asked with."""
NO_PART = ("schema", "id", "load", "goals", "predicted")
"""Fields of a plan that are not what it does."""


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
    sides = [compared_side(given, place) for place, given in enumerate(plans, 1)]
    options = {"trace": trace, "rate": rate, "input": input, "output": output, "requests": requests, "seed": seed}
    given_load = {name: value for name, value in options.items() if value is not None}
    if given_load or any(side.kind in PLANNED for side in sides):
        return _plans(sides, given_load)
    return _answers(sides)


def _plans(sides: Sequence[ComparedSide], options: Mapping[str, Any]) -> SideBySide:
    plans = [side.plan for side in sides]
    for side, plan in zip(sides, plans, strict=True):
        if plan.trains != plans[0].trains:
            one, other = ("training", "serving") if plan.trains else ("serving", "training")
            hint = "Compare plans of serving with each other, and plans of training."
            raise InputError(f"is a {one} plan, and the first is a {other} plan", where=side.name, hint=hint)
    kind = TRAINING_PLAN if plans[0].trains else SERVING_PLAN
    load = _job(sides[0], plans[0], options) if plans[0].trains else _load(sides[0], plans[0], options)
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
        differs=tuple(differing([_parts(one) for one in written])),
        rows=tuple(figure_values(KEY_FIGURES[kind], answers)),
        plans=tuple(written),
    )


def _under(plan: Plan) -> dict[str, Any]:
    if isinstance(plan.load, ServingLoad):
        return plan_under(plan, plan.load).to_dict()
    return report(plan, plan_pool(plan)).to_dict()


def _parts(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name not in NO_PART}


def _job(side: ComparedSide, plan: Plan, options: Mapping[str, Any]) -> TrainingLoad:
    if options:
        hint = "Leave it out: all do the first plan's job."
        raise InputError("a training plan has no requests", where=f"--{next(iter(options))}", hint=hint)
    assert isinstance(plan.load, TrainingLoad)
    return plan.load


def _load(side: ComparedSide, plan: Plan, options: Mapping[str, Any]) -> ServingLoad:
    """The load that was given, or the first plan's; of the latter, what was given instead."""
    own = plan.load if isinstance(plan.load, ServingLoad) else None
    lengths = any(name in options for name in ("trace", "input", "output"))
    if own is None and not lengths:
        hint = "Describe one by --rate, --input and --output, or by --trace."
        raise InputError("the first plan has no load to compare under", where=side.name, hint=hint)
    base = ServingLoad(rate_per_s=own.rate_per_s if own else None) if lengths or own is None else own
    if lengths and "trace" not in options and not ("input" in options and "output" in options):
        raise InputError("the load has no lengths", where="--input, --output", hint="Give both, or a --trace.")
    trace = options.get("trace")
    found = replace(
        base,
        trace=str(Path(trace).resolve()) if trace and Path(trace).is_file() else str(trace or base.trace),
        rate_per_s=parse_rate(options["rate"], "--rate") if "rate" in options else None if trace else base.rate_per_s,
        input_tokens=parse_whole(options["input"], "--input") if "input" in options else base.input_tokens,
        output_tokens=parse_whole(options["output"], "--output") if "output" in options else base.output_tokens,
        seed=parse_whole(options["seed"], "--seed", least=0) if "seed" in options else base.seed,
    )
    if "requests" in options:
        return replace(found, requests=parse_whole(options["requests"], "--requests"))
    return replace(found, requests=0) if trace else found


def _answers(sides: Sequence[ComparedSide]) -> SideBySide:
    first = sides[0]
    for side in sides:
        if side.kind not in KEPT:
            known = f"Known: plans, and answers of {', '.join(KEPT)}."
            what = f"is an answer of `gnomon {side.kind}`" if side.kind else "is not an answer of Gnomon"
            raise InputError(f"{what}, which is not compared", where=side.name, hint=known)
        if side.kind != first.kind:
            message = f"is an answer of `gnomon {side.kind}`, and the first is of `gnomon {first.kind}`"
            raise InputError(message, where=side.name, hint="Compare answers of one command, or plans.")
        check(side.answer, shape_of(side.kind.replace(" ", "."), side.answer) | INPUTS, side.name)
    return SideBySide(
        title=f"{len(sides)} answers of gnomon {first.kind}",
        kind=first.kind,
        names=tuple(side.name for side in sides),
        on={},
        differs=tuple(differing([dict(side.answer.get("inputs") or {}) for side in sides])),
        rows=tuple(figure_values(KEY_FIGURES[first.kind], [side.answer for side in sides])),
    )
