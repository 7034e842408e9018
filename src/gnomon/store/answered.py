"""The plan that an answer is about, where its inputs name one deployment: a prediction, a fit, a simulated load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gnomon.engines import operated_engines
from gnomon.load.fields import Fields
from gnomon.load.fleet import parse_pool
from gnomon.load.plan import plan_from_dict
from gnomon.spec import Plan, Pool, Recipe

SERVED = ("predict", "fit", "simulate.serve")
"""Answers about one replica of a serving engine, or of a training one."""
DEGREES = ("tp", "pp", "ep", "cp", "dp")


def plan_of(kind: str, payload: Mapping[str, Any], where: str) -> Plan | None:
    """The plan of an answer's inputs; none where they name no engine that a plan can be started with."""
    inputs = payload.get("inputs")
    if kind not in SERVED or not isinstance(inputs, Mapping):
        return None
    given = Fields(inputs, where, "inputs")
    if not given.has("engine") or not given.has("on"):
        return None
    name, _, version = given.text("engine").partition("@")
    trains = inputs.get("phase") == "train"
    if not trains and name not in operated_engines():
        return None
    pool = parse_pool(given.text("on"), given.spot("on"))
    written = _common(given, pool) | (_training(given) if trains else _serving(given))
    written["engine"] = {"name": name, **({"version": version} if version else {}), "settings": written["settings"]}
    del written["settings"]
    return plan_from_dict(written, where)


def _common(given: Fields, pool: Pool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "schema": "gnomon.plan/1",
        "model": given.text("model"),
        "chip": pool.chip.reference,
        "replicas": 1,
        "dtype": given.text("dtype"),
    }
    techniques = {"techniques": given.list("techniques")} if given.has("techniques") else {}
    strategy = {name: given.whole(name, 1) for name in DEGREES}
    if pool.unusual_node_size:
        found["per_node"] = pool.unusual_node_size
    return found | {"strategy": strategy | techniques}


def _serving(given: Fields) -> dict[str, Any]:
    """With the load, where there was one: a trace, or equal requests."""
    found: dict[str, Any] = {"kv_dtype": given.text("kv_dtype"), "settings": given.inner("settings").items()}
    load: dict[str, Any] = {}
    names = {"trace": "trace", "rate": "rate_per_s", "input": "input_tokens", "output": "output_tokens"}
    for asked, field in (names | {"requests": "requests", "seed": "seed"}).items():
        if given.has(asked):
            load[field] = given.raw(asked)
    described = "trace" in load or "input_tokens" in load
    return found | ({"load": load} if described else {})


def _training(given: Fields) -> dict[str, Any]:
    """A step of `batch` sequences of `tokens` tokens; the recipe's fields stand among the inputs by their names."""
    recipe = {field.name: given.raw(field.name) for field in fields(Recipe) if given.has(field.name)}
    load = {"seq": given.whole("tokens"), "global_batch": given.whole("batch")}
    return {"settings": recipe, "load": load}
