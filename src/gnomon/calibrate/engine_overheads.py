"""An engine's own share of a step, measured on this machine; later predictions with that engine use it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon.engines.own import AGAIN
from gnomon.errors import CalibrationError, InputError, UnwrittenError, unknown_name
from gnomon.load.overheads import forget_own, own_overheads, own_path
from gnomon.paths import unwritten, write_text
from gnomon.spec.answers import Result


@dataclass(frozen=True, kw_only=True)
class EngineCalibrated(Result):
    """Figures of an engine's overheads in microseconds, by kind of model."""

    SCHEMA = "calibrate.engine"
    title: str
    engine: str
    version: str
    host: str
    models: Sequence[str]
    figures: Mapping[str, Mapping[str, float]]
    table: str
    profile: str


def calibrate_engine(
    engine: str, model: str | None, out: str | Path | None = None, *, progress: Callable[[str], None] | None = None
) -> EngineCalibrated:
    """Start the engine with dummy weights of a model, measure its steps and keep its overheads among the user's own.

    The measured steps go to the JSON file `out`, where one is named.
    """
    from gnomon.calibrate.engine_run import ENGINES

    if engine not in ENGINES:
        raise unknown_name("engine to measure", engine, ENGINES, where="--engine")
    if not model:
        raise InputError("an engine is measured with a model", where="--model", hint="Such as llama-3.2-1b.")
    data, made = ENGINES[engine](model, progress or (lambda text: None))
    problem = unwritten(Path(out), json.dumps(dict(data), indent=1) + "\n") if out is not None else None
    answer = kept(made, str(out or ""))
    if problem is not None:
        raise UnwrittenError(problem, answer)
    return answer


def kept(made: Mapping[str, Any], table: str) -> EngineCalibrated:
    """Figures put where predictions find them, kinds that were measured before kept beside them."""
    import yaml

    target = own_path(str(made["engine"]))
    before = _before(str(made["engine"]))
    same = before.get("version") == made["version"]
    figures = {**(before.get("figures", {}) if same else {}), **made["figures"]}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InputError(f"cannot be made: {problem.strerror or problem}", where=str(target.parent)) from None
    write_text(target, yaml.safe_dump(dict(made) | {"figures": figures}, sort_keys=False, width=100))
    forget_own()
    return EngineCalibrated(
        title=f"{made['engine']} {made['version']} on this host: its own share of a step",
        engine=made["engine"],
        version=made["version"],
        host=made["host"],
        models=made["models"],
        figures=made["figures"],
        table=table,
        profile=str(target),
    )


def _before(engine: str) -> Mapping[str, Any]:
    """What was measured earlier; nothing where that file is broken, since its error says to calibrate again."""
    try:
        return own_overheads(engine).get(engine, {})
    except CalibrationError as problem:
        if problem.hint != AGAIN:
            raise
        return {}
