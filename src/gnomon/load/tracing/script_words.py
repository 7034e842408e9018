"""`gnomon predict SCRIPT.py:FUNCTION`: a question of `predict` as one of `trace`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from gnomon.engines import engine_info, module_engine
from gnomon.errors import InputError, MissingExtraError, unknown_name
from gnomon.load.fleet import parse_pool
from gnomon.load.tracing import built, parted, trace_module
from gnomon.spec import Pool
from gnomon.spec.questions.running import TraceQuestion
from gnomon.spec.questions.step import PredictQuestion
from gnomon.spec.traced import Traced

PHASES = ("forward", "train")
SETTINGS: Mapping[str, type] = {
    "autocast": str,
    "launch": str,
    "optimizer": str,
    "sustained": bool,
    "tf32": bool,
}
UNUSED = ("tokens", "context", "kv_dtype", "tp", "source", "images", "image", "steps", "pp", "ep", "cp", "dp")
"""What only other forms of `predict` take."""


def one_chip(question: TraceQuestion) -> Pool:
    """The chip of a question, once its phase is known to be one."""
    if question.phase not in PHASES:
        raise unknown_name("phase", str(question.phase), PHASES, where="--phase")
    pool = parse_pool(question.on)
    if pool.count != 1:
        raise InputError(f"'{question.on}' is more than the one chip a traced module runs on", where="--on")
    return pool


def require_torch() -> None:
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "torch", "tracing a module")


def traced_module(module: Any, inputs: Any, asked: TraceQuestion) -> Traced:
    """What one step of the module calls, as a question asks for it."""
    require_torch()
    options = {name: getattr(asked, name) for name in ("phase", "dtype", "autocast", "batch", "loss", "optimizer")}
    return trace_module(module, inputs, **options, captured=asked.launch == "graph")


def script_question(question: PredictQuestion) -> TraceQuestion:
    """What the flags of `predict` say of a module; those that say nothing about one are refused."""
    words, engine, settings = str(question.model), question.engine, question.settings or {}
    parted(words)
    for name in UNUSED:
        if getattr(question, name) not in (None, 0, 1):
            where = question.flags()[name].where
            raise InputError(f"says nothing about a module of {words}", where=where, hint="Leave it out.")
    info = None if engine is None else engine_info(engine.partition("@")[0])
    if engine is not None and not (info and info.runs_modules):
        raise InputError(
            f"'{engine}' does not run modules", where="--engine", hint=f"Leave it out, or use {module_engine()}."
        )
    require_torch()
    return TraceQuestion(
        on=question.on, phase=question.phase or "forward", dtype=question.dtype, batch=question.batch,
        **_options(settings),
    )  # fmt: skip


def scripted(words: str, asked: TraceQuestion) -> tuple[Any, Any, TraceQuestion]:
    """The module and the inputs that the user's function gives, and the question with what else it gives."""
    given = built(words)
    module, inputs = given.pop("module"), given.pop("inputs")
    return module, inputs, replace(asked, **given)


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in settings.items():
        if name not in SETTINGS:
            raise unknown_name("setting", name, SETTINGS, where="--set")
        if not isinstance(value, SETTINGS[name]):
            kind = "true or false" if SETTINGS[name] is bool else "a name"
            raise InputError(f"'{value}' is not {kind}", where=f"--set {name}")
    return dict(settings)
