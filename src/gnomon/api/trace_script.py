"""`gnomon predict SCRIPT.py:FUNCTION`: the words of a command line around `gnomon.trace`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from gnomon.api.trace import trace
from gnomon.errors import InputError, MissingExtraError, unknown_name
from gnomon.load.tracing import built, parted
from gnomon.spec.answers import ModulePrediction

SETTINGS: Mapping[str, type] = {
    "autocast": str,
    "launch": str,
    "optimizer": str,
    "sustained": bool,
    "tf32": bool,
}


def predict_script(
    words: str,
    *,
    on: str,
    phase: str | None,
    batch: int | None,
    dtype: str | None,
    engine: str | None,
    settings: Mapping[str, Any] | None,
    unused: Mapping[str, Any],
) -> ModulePrediction:
    """The module that the user's own function builds, traced and priced. `unused` has flags that only other forms of
    `predict` take, with what was given for them. What the user's code prints goes to stderr: stdout has the answer."""
    parted(words)
    for flag, value in unused.items():
        if value not in (None, 0, 1):
            raise InputError(f"says nothing about a module of {words}", where=flag, hint="Leave it out.")
    if engine is not None and engine.partition("@")[0] != "torch":
        raise InputError(f"'{engine}' does not run modules", where="--engine", hint="Leave it out, or use torch.")
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "torch", "tracing a module")
    options = _options(settings or {})
    with redirect_stdout(sys.stderr):
        given = built(words)
        answer = trace(
            given.pop("module"),
            given.pop("inputs"),
            on=on,
            phase=phase or "forward",
            dtype=dtype,
            batch=batch,
            **(given | options),
        )
    asked = {"dtype": dtype, "batch": batch, "settings": dict(settings or {})}
    return replace(answer, inputs=dict(answer.inputs) | {"model": words, "asked": asked})


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if name not in SETTINGS:
            raise unknown_name("setting", name, SETTINGS, where="--set")
        if not isinstance(value, SETTINGS[name]):
            kind = "true or false" if SETTINGS[name] is bool else "a name"
            raise InputError(f"'{value}' is not {kind}", where=f"--set {name}")
    return dict(settings)
