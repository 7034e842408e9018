"""`gnomon predict SCRIPT.py:FUNCTION` and `FILE.trace.json`: a question of `predict` as one of `trace`."""

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
    "fused": bool,
    "launch": str,
    "optimizer": str,
    "sustained": bool,
    "tf32": bool,
}
PRICED = ("fused", "launch", "sustained", "tf32")
"""Settings that say how a step is priced, and not what it calls."""
UNUSED = ("tokens", "context", "kv_dtype", "tp", "source", "images", "image", "pp", "ep", "cp", "dp")
"""What only other forms of `predict` take."""


def one_chip(question: TraceQuestion) -> Pool:
    """The chip of a question, once its phase is known to be one."""
    if question.phase not in PHASES:
        raise unknown_name("phase", str(question.phase), PHASES, where="--phase")
    if question.steps < 1 or (question.steps > 1 and question.phase != "forward"):
        message = f"{question.steps} is below 1" if question.steps < 1 else "a training step is priced by itself"
        raise InputError(message, where="--steps", hint="Leave it out.")
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
    words, settings = str(question.model), question.settings or {}
    parted(words)
    _refuse_unused(question)
    require_torch()
    return TraceQuestion(
        on=question.on, phase=question.phase or "forward", dtype=question.dtype, batch=question.batch,
        steps=_steps(question),
        **_options(settings, SETTINGS),
    )  # fmt: skip


def file_question(question: PredictQuestion, traced: Traced) -> TraceQuestion:
    """What the flags of `predict` say of a trace in a file; what was settled when it was traced is refused."""
    _refuse_unused(question)
    for name, was in (("phase", traced.phase), ("dtype", traced.dtype), ("batch", traced.samples)):
        if getattr(question, name) not in (None, was):
            message = f"{getattr(question, name)} is not what was traced: {was}"
            raise InputError(message, where=question.flags()[name].where, hint="Leave it out, or trace it again.")
    priced = {name: SETTINGS[name] for name in PRICED}
    return TraceQuestion(
        on=question.on, phase=traced.phase, steps=_steps(question), **_options(question.settings or {}, priced)
    )


def _steps(question: PredictQuestion) -> int:
    return 1 if question.steps is None else question.steps


def _refuse_unused(question: PredictQuestion) -> None:
    words, engine = str(question.model), question.engine
    for name in UNUSED:
        if getattr(question, name) not in (None, 0, 1):
            where = question.flags()[name].where
            raise InputError(f"says nothing about a module of {words}", where=where, hint="Leave it out.")
    info = None if engine is None else engine_info(engine.partition("@")[0])
    if engine is not None and not (info and info.runs_modules):
        raise InputError(
            f"'{engine}' does not run modules", where="--engine", hint=f"Leave it out, or use {module_engine()}."
        )


def scripted(words: str, asked: TraceQuestion) -> tuple[Any, Any, TraceQuestion]:
    """The module and the inputs that the user's function gives, and the question with what else it gives."""
    given = built(words)
    module, inputs = given.pop("module"), given.pop("inputs")
    return module, inputs, replace(asked, **given)


def _options(settings: Mapping[str, Any], known: Mapping[str, type]) -> dict[str, Any]:
    for name, value in settings.items():
        if name not in known:
            raise unknown_name("setting", name, known, where="--set")
        if not isinstance(value, known[name]):
            kind = "true or false" if known[name] is bool else "a name"
            raise InputError(f"'{value}' is not {kind}", where=f"--set {name}")
    return dict(settings)
