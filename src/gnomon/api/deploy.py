"""From names and numbers to one replica of a model under an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.engines import Deployment, Engine
from gnomon.engines import engine as engine_of
from gnomon.errors import InputError
from gnomon.graph.dtypes import width
from gnomon.graph.lower import check_degrees
from gnomon.graph.support import check_priced
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.spec import EngineChoice, Model, Pool, Strategy
from gnomon.spec.narrowed import in_format


def deploy(
    model: Model,
    pool: Pool,
    *,
    strategy: Strategy | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    engine: str | EngineChoice = "vllm",
    settings: Mapping[str, Any] | None = None,
    priced: bool = True,
) -> tuple[Engine, Deployment]:
    """One replica, with the engine's defaults filled in. Nothing is priced or checked against memory yet.

    What is not `priced` only has to have a memory: operators need not stand for all of it.
    """
    strategy = strategy or Strategy()
    chosen = engine_of(engine if isinstance(engine, str) else engine.label)
    if strategy.techniques:
        raise InputError(
            f"no technique is known yet, and '{strategy.techniques[0]}' is asked for", where="strategy.techniques"
        )
    dtype = dtype or pool.chip.instead_of(model.dtype) or model.dtype
    if priced:
        check_priced(model, dtype)
    model = in_format(model, dtype)
    kv_dtype = kv_dtype or (pool.chip.half if width(dtype) < 2 else dtype)
    width(kv_dtype)
    if priced:
        check_degrees(model, strategy)
    given = ({} if isinstance(engine, str) else dict(engine.settings)) | dict(settings or {})
    deployment = Deployment(
        model=model,
        pool=pool,
        strategy=strategy,
        dtype=dtype,
        kv_dtype=kv_dtype,
        settings=chosen.settings(given, model, pool),
    )
    if priced:
        chosen.check(deployment)
    else:
        chosen.check_memory(deployment)
    if strategy.ranks > pool.count:
        raise InputError(
            f"{strategy.ranks} chips are needed for one replica and {pool.count} are there",
            where="--on",
            hint=f"Use --on {pool.chip.name}:{strategy.ranks}, or lower the parallel degrees.",
        )
    return chosen, deployment


def whole(value: Any, where: str) -> int:
    """A whole number, however it came: an int, a NumPy one, 4.0."""
    try:
        number = int(value)
        same = number == value and not isinstance(value, (bool, str))
    except (TypeError, ValueError, OverflowError):
        same = False
    if not same:
        raise InputError(f"'{value}' is not a whole number", where=where)
    return number


def deploy_named(
    model: str | Path | Model,
    on: str,
    *,
    dtype: str | None,
    kv_dtype: str | None,
    engine: str,
    strategy: Strategy | None = None,
    tp: int | None = None,
    settings: Mapping[str, Any] | None,
    priced: bool = True,
) -> tuple[Engine, Deployment, dict[str, Any]]:
    """One replica from the words of a command, and those words, so that an answer can be asked for again.

    Without a tensor-parallel degree the replica spans all chips of `on`.
    """
    found = model if isinstance(model, Model) else load_model(model)
    pool = parse_pool(on)
    strategy = strategy or Strategy(tp=pool.count if tp is None else whole(tp, "--tp"))
    chosen, deployment = deploy(
        found, pool, strategy=strategy, dtype=dtype, kv_dtype=kv_dtype, engine=engine, settings=settings, priced=priced
    )
    words = {
        "model": model.name if isinstance(model, Model) else str(model),
        "on": on,
        "tp": strategy.tp,
        **{name: getattr(strategy, name) for name in ("pp", "ep", "cp", "dp") if getattr(strategy, name) != 1},
        "dtype": deployment.dtype,
        "kv_dtype": deployment.kv_dtype,
        "engine": f"{chosen.name}@{chosen.version}",
        "settings": dict(settings or {}),
    }
    return chosen, deployment, words


def title_of(engine: Engine, deployment: Deployment) -> str:
    """Model, number format, chips and engine, as every answer begins."""
    from gnomon.catalog import model_title

    try:
        name = model_title(deployment.model.name)
    except InputError:
        name = deployment.model.name
    chips = f"{deployment.strategy.ranks} x {deployment.pool.chip.name}"
    short = ".".join(engine.version.split(".")[:2])
    label = "vLLM" if engine.name == "vllm" else engine.name
    return f"{name}, {deployment.dtype}, {chips}, {label} {short}"
