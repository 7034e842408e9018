"""A serving technique on a model and its chips: decode step, prompt and KV cache capacity, with and without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gnomon.errors import InputError, NotApplicableError
from gnomon.spec import Estimate, Model, Pool
from gnomon.spec.answers import Fit, Prediction
from gnomon.spec.questions.tried import TryQuestion
from gnomon.spec.tried import MODEL, NO_CHANGE, NONE, TechniqueComparison, times
from gnomon.techniques import AnyTechnique, Trial
from gnomon.techniques.base import changes_only_loads
from gnomon.units import format_bytes, format_duration

BATCH, CONTEXT = 8, 2048
"""Default sequences of a decode step and tokens per sequence, as far as the KV cache holds them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The deployment with some techniques: its memory, or why it cannot run."""

    techniques: tuple[str, ...]
    room: Fit | None = None
    problem: InputError | None = None
    figures: Mapping[str, Any] | None = None
    """Metrics of a step of the compared batch, where the batch fits."""

    @property
    def resident(self) -> int:
        """Sequences that the cache holds at once."""
        return int(self.room.max_batch or 0) if self.room and self.room.fits else 0

    @property
    def sessions(self) -> float:
        """Sequences that can be open: those swapped to the host count too, once one fits the cache."""
        known = self.room.techniques.values() if self.room and self.resident else ()
        return self.resident + sum(float(facts.get("sessions_on_host", 0.0)) for facts in known)

    @property
    def lacks(self) -> str:
        """Why not one sequence fits."""
        assert self.room is not None
        weights, usable = float(self.room.parts["weights"]), self.room.usable_bytes
        if weights > usable:
            return f"its weights take {format_bytes(weights)} of {format_bytes(usable)} usable"
        tokens = f"{self.room.inputs['context']:,} tokens"
        return f"with {format_bytes(weights)} of weights, {format_bytes(usable)} hold no sequence of {tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What is compared: a model on chips at a context, with the functions that size and price it."""

    model: Model
    on: str | Pool
    context: int
    dtype: str | None
    fit: Callable[..., Fit]
    predict: Callable[..., Prediction]

    def room(self, techniques: tuple[str, ...]) -> _Side:
        try:
            room = self.fit(self.model, on=self.on, dtype=self.dtype, context=self.context, techniques=techniques)
        except InputError as problem:
            return _Side(techniques=techniques, problem=problem)
        return _Side(techniques=techniques, room=room)

    def priced(self, side: _Side, batch: int) -> _Side:
        """The side with the metrics of a step, where `predict` finds that the same step fits."""
        room = side.room
        if room is None or batch > side.resident:
            return side
        options: dict[str, Any] = {"on": self.on, "dtype": self.dtype, "techniques": side.techniques}
        try:
            step = self.predict(self.model, phase="decode", batch=batch, context=max(self.context - 1, 0), **options)
            prompt = self.predict(self.model, phase="prefill", batch=1, tokens=self.context, **options)
        except InputError as problem:
            return _Side(techniques=side.techniques, problem=problem)
        figures = {
            "title": step.title,
            "fits": step.fits and prompt.fits,
            "step_time_s": step.time_s,
            "prompt_time_s": prompt.time_s,
            "weight_bytes": float(room.parts["weights"]),
            "sessions": side.resident,
            "facts": dict(room.techniques),
            "techniques": list(side.techniques),
        }
        return _Side(techniques=side.techniques, room=room, figures=figures if figures["fits"] else None)


def compare_serving(
    one: AnyTechnique,
    trial: Trial,
    question: TryQuestion,
    named: tuple[str, Model],
    fit: Callable[..., Fit],
    predict: Callable[..., Prediction],
) -> TechniqueComparison:
    """The same deployment with and without a technique, in the requested number format or the stored one.

    The default batch is the largest up to eight that fits on both sides, or on the one where any fits. Where neither
    the technique nor what it is compared with applies, it is compared with the deployment without either.
    """
    _check_step(one)
    name, model = named
    context = min(CONTEXT, model.max_context) if question.context is None else question.context
    served = _Served(model=model, on=question.on, context=context, dtype=question.dtype, fit=fit, predict=predict)
    load: dict[str, Any] = {"model": name, "on": str(question.on), "context": context, "dtype": question.dtype}
    sides = [served.room((words,) if words else ()) for words in (trial.against, trial.words)]
    if trial.against and all(isinstance(side.problem, NotApplicableError) for side in sides):
        trial, sides[0] = replace(trial, against=""), served.room(())
    _check_any(sides)
    rooms = [side.resident for side in sides if side.resident]
    batch = min([BATCH, *rooms]) if question.batch is None else question.batch
    load["batch"] = batch
    before, after = sides = [served.priced(side, batch) for side in sides]
    _check_any(sides)
    gains = _gains(before, after)
    helps, verdict = _verdict(before, after, load, batch if question.batch else None)
    weights = [float(side.room.parts["weights"]) for side in (before, after) if side.room]
    shown = after if after.room else before
    assert shown.room is not None
    return TechniqueComparison(
        title=shown.figures["title"] if shown.figures else shown.room.title,
        paper=trial.paper,
        technique=trial.words,
        idea=one.idea,
        against=trial.against,
        plain=before.figures,
        applied=after.figures,
        gain=gains.get("step_time_s"),
        memory_saved_bytes=weights[0] - weights[1] if len(weights) == 2 else None,
        note=trial.note,
        helps=helps,
        verdict=verdict,
        missing={name: _absence(side) for name, side in (("plain", before), ("applied", after)) if not side.figures},
        inputs=load | {"work": "serving"},
    )


def _check_step(one: AnyTechnique) -> None:
    """Raise InputError for a technique that only changes what a load does: a step and its memory are the same."""
    if changes_only_loads(one):
        message = f"{one.name} changes what becomes of a load, and a step is the same with it"
        hint = f"Compare `gnomon simulate serve` or `plan serve` --with {one.name} and without."
        raise InputError(message, where="SLUG", hint=hint)


def _check_any(sides: Sequence[_Side]) -> None:
    """Raise the problem where neither side runs."""
    problems = [side.problem for side in sides if side.problem is not None]
    if len(problems) == len(sides):
        if problems[0].where == "--phase":  # which nobody gave: there is no decode to compare
            problems[0].where, problems[0].hint = MODEL, "Use a model that decodes."
        raise problems[0]


def _gains(before: _Side, after: _Side) -> dict[str, Estimate]:
    if before.figures is None or after.figures is None:
        return {}
    return {name: before.figures[name].over(after.figures[name]) for name in ("step_time_s", "prompt_time_s")}


def _verdict(before: _Side, after: _Side, load: Mapping[str, Any], asked: int | None) -> tuple[bool, str]:
    if after.problem is not None:
        return False, f"{NONE}: {_reason(after.problem)}."
    if before.problem is not None:
        runs = after.figures is not None
        return runs, f"Without it this does not run: {_reason(before.problem)}. With it {_has(after, load)}."
    if before.figures is None or after.figures is None:
        more = after.sessions > before.sessions
        both = f"Without it {_has(before, load)}; with it {_has(after, load)}."
        fewer = f" {asked:,} were requested." if asked and after.resident < asked else ""
        return more, f"{'' if more else f'{NONE}. '}{both}{fewer}"
    gains = _gains(before, after)
    step, prompt = gains["step_time_s"], gains["prompt_time_s"]
    figures = f"decode step {times(step)}, prompt {times(prompt)}, {_compared(before, after)}"
    faster = max(step.value, prompt.value) > 1 + NO_CHANGE
    if faster or after.sessions > before.sessions:
        return True, f"{figures[0].upper()}{figures[1:]}."
    return False, f"{NONE}: {figures}."


def _reason(problem: InputError) -> str:
    return problem.reason if isinstance(problem, NotApplicableError) else problem.message


def _has(side: _Side, load: Mapping[str, Any]) -> str:
    """How many sequences a side holds, and how long a step takes."""
    if not side.resident:
        return f"the model does not fit: {side.lacks}"
    room = f"there is room for {_sequences(side)} of {load['context']:,} tokens"
    if side.figures is None:
        return room
    return f"{room}, and a decode step of {load['batch']:,} takes {format_duration(side.figures['step_time_s'].value)}"


def _absence(side: _Side) -> str:
    """Why a side has no metrics, in short."""
    if side.problem is not None:
        return "does not run"
    return f"room for {side.resident:,}" if side.resident else "does not fit"


def _sequences(side: _Side) -> str:
    waiting = side.sessions - side.resident
    count = "1 sequence" if side.resident == 1 else f"{side.resident:,} sequences"
    return f"{count} and {waiting:,.0f} more on the host" if waiting else count


def _compared(before: _Side, after: _Side) -> str:
    same = before.sessions == after.sessions
    return f"room for {_sequences(after)}" + (" as before" if same else f" in place of {before.sessions:,.0f}")
