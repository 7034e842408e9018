"""An idea of serving on a model and chips of the user's: a decode step, a prompt and the room for sequences, with it
and without."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.api.fit import fit
from gnomon.api.predict import predict
from gnomon.api.tried import NO_CHANGE, Tried
from gnomon.errors import InputError
from gnomon.spec import Estimate
from gnomon.techniques import Technique, Trial

BATCH, CONTEXT = 8, 2048
"""Sequences of a decode step and tokens of each, where nothing else is asked for."""


def try_serving(
    one: Technique, trial: Trial, *, model: str | Path, on: str, batch: int, context: int, dtype: str | None
) -> Tried:
    """The same deployment with and without; the format is that asked for, or as stored, and the idea's own with it."""
    load: dict[str, Any] = {"model": str(model), "on": on, "batch": batch, "context": context, "dtype": dtype}
    before = _figures(load, (trial.against,) if trial.against else ())
    after, why = _applied(load, (trial.words,))
    gains = _gains(before, after)
    helps, verdict = _verdict(before, after, gains, why)
    return Tried(
        title=(after or before)["title"],
        paper=trial.paper,
        technique=trial.words,
        idea=one.idea,
        against=trial.against,
        plain=before if before["fits"] else None,
        applied=after if after and after["fits"] else None,
        gain=gains.get("step_time_s"),
        memory_saved_bytes=before["weight_bytes"] - after["weight_bytes"] if after else None,
        note=trial.note,
        helps=helps,
        verdict=verdict,
        inputs=load | {"work": "serving"},
    )


def _applied(load: Mapping[str, Any], techniques: tuple[str, ...]) -> tuple[dict[str, Any] | None, str]:
    """Figures with the idea, or why it cannot be used: without it all of this runs."""
    try:
        return _figures(load, techniques), ""
    except InputError as problem:
        return None, problem.message.partition("does not apply: ")[2] or problem.message


def _figures(load: Mapping[str, Any], techniques: tuple[str, ...]) -> dict[str, Any]:
    model, words = load["model"], {"on": load["on"], "dtype": load["dtype"], "techniques": techniques}
    room = fit(model, context=load["context"], **words)
    step = predict(model, phase="decode", batch=load["batch"], context=max(load["context"] - 1, 0), **words)
    prompt = predict(model, phase="prefill", batch=1, tokens=load["context"], **words)
    found = {
        "title": step.title,
        "fits": room.fits,
        "step_time_s": step.time_s,
        "prompt_time_s": prompt.time_s,
        "weight_bytes": float(room.parts["weights"]),
        "sessions": int(room.max_batch or 0),
        "facts": dict(room.techniques),
        "techniques": list(techniques),
    }
    return found | {"fits": room.fits and _sessions(found) >= load["batch"]}


def _gains(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> dict[str, Estimate]:
    if not after or not before["fits"] or not after["fits"]:
        return {}
    return {name: before[name].over(after[name]) for name in ("step_time_s", "prompt_time_s")}


def _verdict(
    before: Mapping[str, Any], after: Mapping[str, Any] | None, gains: Mapping[str, Estimate], why: str
) -> tuple[bool, str]:
    if after is None:
        return False, f"It brings nothing here: {why}."
    if not after["fits"]:
        return False, f"It brings nothing here: with it there is room for {_sessions(after):,.0f} sequences."
    if not before["fits"]:
        now, then = _sessions(after), _sessions(before)
        return True, f"With it there is room for {now:,.0f} sequences, without it for {then:,.0f}."
    step, prompt = gains["step_time_s"], gains["prompt_time_s"]
    figures = f"a decode step {_times(step)}, a prompt {_times(prompt)}, {_room(before, after)}"
    quicker = max(step.value, prompt.value) > 1 + NO_CHANGE
    if quicker or _sessions(after) > _sessions(before):
        return True, f"{figures[0].upper()}{figures[1:]}."
    return False, f"It brings nothing here: {figures}."


def _times(gain: Estimate) -> str:
    edges = f" ({gain.low:.2f} to {gain.high:.2f}, 90%)" if gain.low < gain.high else ""
    return f"{gain.value:.2f}x as quick{edges}"


def _sessions(figures: Mapping[str, Any]) -> float:
    more = (facts.get("sessions_on_host", 0.0) for facts in figures["facts"].values())
    return float(figures["sessions"] + sum(more))


def _room(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    now, then = _sessions(after), _sessions(before)
    return f"room for {now:,.0f} sequences" + (f" in place of {then:,.0f}" if now != then else " as before")
