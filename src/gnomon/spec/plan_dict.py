"""A plan as plain values, for JSON and YAML; `gnomon.load.plan` reads them back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from gnomon.spec.loads.popularity import priorities_text
from gnomon.spec.plan import WHOLE, EngineChoice, Plan, PlanPool, Strategy
from gnomon.spec.training import TrainingLoad
from gnomon.spec.workload import Goal, ServingLoad

SCHEMA = "gnomon.plan/1"
DEGREES = ("tp", "pp", "ep", "cp", "dp")


def plan_to_dict(plan: Plan, *, flat: bool = False) -> dict[str, Any]:
    """A plan as plain values in a fixed order, without what is empty. Goals are in seconds.

    A plan of one pool has the fields of the pool beside `pools`, or with `flat` in its place.
    """
    several = bool(plan.pools)
    own = {} if several else pool_to_dict(plan.each_pool[0])
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "id": plan.id,
        "model": plan.model,
        **{name: own.get(name) for name in ("chip", "per_node", "power_limit_w", "replicas")},
        "router": plan.router if several or plan.replicas > 1 else None,
        "kv_transfer": plan.kv_transfer if plan.kv_transfer != WHOLE else None,
        **{name: own.get(name) for name in ("strategy", "dtype", "kv_dtype")},
        "checkpoint": plan.checkpoint,
        "engine": own.get("engine"),
        "pools": [] if plan.trains or (flat and not several) else [pool_to_dict(pool) for pool in plan.each_pool],
        "load": _load_to_dict(plan.load) if plan.load else {},
        "goals": {entry.name: entry.limit_s for entry in plan.goals},
        "predicted": as_json(plan.predicted),
    }
    return _without_empty(fields)


def pool_to_dict(pool: PlanPool) -> dict[str, Any]:
    """One pool as plain values, without what is empty."""
    fields: dict[str, Any] = {
        "role": pool.role,
        "chip": pool.chip,
        "per_node": pool.per_node or None,
        "power_limit_w": pool.power_limit_w or None,
        "replicas": pool.replicas,
        "weight": pool.weight if pool.weight != 1 else None,
        "strategy": _strategy_to_dict(pool.strategy),
        "dtype": pool.dtype,
        "kv_dtype": pool.kv_dtype,
        "engine": _engine_to_dict(pool.engine),
    }
    return _without_empty(fields)


def _engine_to_dict(engine: EngineChoice) -> dict[str, Any]:
    settings = as_json(engine.settings)
    return _without_empty({"name": engine.name, "version": engine.version, "settings": settings})


def _strategy_to_dict(strategy: Strategy) -> dict[str, Any]:
    written: dict[str, Any] = {name: getattr(strategy, name) for name in DEGREES}
    written |= {"vp": strategy.vp} if strategy.vp > 1 else {}
    return written | ({"techniques": list(strategy.techniques)} if strategy.techniques else {})


def _load_to_dict(load: ServingLoad | TrainingLoad) -> dict[str, Any]:
    if isinstance(load, TrainingLoad):
        written = {"seq": load.seq, "global_batch": load.global_batch, "tokens": load.tokens} | load.together
        return _without_empty(written | (load.sequences.described if load.sequences else {}))
    return _without_empty(
        {
            "trace": load.trace,
            "rate_per_s": load.rate_per_s,
            "input_tokens": _described(load.input_tokens),
            "output_tokens": _described(load.output_tokens),
            "arrivals": _described(load.arrivals),
            "prefix": _described(load.prefix),
            "turns": load.turns if load.turns > 1 else None,
            "think_s": load.think_s or None,
            "adapters": _described(load.adapters),
            "priorities": priorities_text(load.priorities),
            "images": _described(load.images),
        }
    ) | {"requests": load.requests, "seed": load.seed}


def _described(given: Any) -> Any:
    """The text of a description; a number as it is."""
    return getattr(given, "text", given)


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None and value not in ("", {}, [])}


def as_json(value: Any) -> Any:
    """Estimates, plans, goals, arrays and nested containers as values that JSON and YAML hold; what is not a number
    becomes null."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Goal):
        return {"name": value.name, "limit_s": value.limit_s}
    if isinstance(value, Plan):
        return plan_to_dict(value)
    if is_dataclass(value):
        return {each.name: as_json(getattr(value, each.name)) for each in fields(value)}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
