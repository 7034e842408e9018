"""A small schema language for JSON answers: types, required keys, lists of one shape, and estimates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Shape = Any
number = (int, float)
PROVENANCE = {"measured", "interpolated", "fitted", "formula"}


def check(value: Any, shape: Shape, path: str = "$") -> None:
    """Fail, naming the path, where the value has not the shape. Keys beyond those named are allowed."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), f"{path} is {type(value).__name__}, not an object"
        missing = set(shape) - set(value)
        assert not missing, f"{path} lacks {sorted(missing)}"
        for key, inner in shape.items():
            check(value[key], inner, f"{path}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), f"{path} is {type(value).__name__}, not a list"
        for index, item in enumerate(value):
            check(item, shape[0], f"{path}[{index}]")
    elif isinstance(shape, (type, tuple)):
        right = isinstance(value, shape) and (not isinstance(value, bool) or shape is bool)
        assert right, f"{path} is {value!r}, not {shape}"
    else:
        shape(value, path)


def estimate(value: Any, path: str) -> None:
    """`E`: a value inside its band, and where it comes from."""
    check(value, {"value": number, "low": number, "high": number, "provenance": str, "source": str}, path)
    assert value["provenance"] in PROVENANCE, path
    exact = value["provenance"] == "formula" and value["low"] == value["value"] == value["high"]
    assert exact or value["low"] < value["value"] < value["high"], path
    assert math.isfinite(value["value"]), path


def positive(value: Any, path: str) -> None:
    check(value, number, path)
    assert value > 0, path


def share(value: Any, path: str) -> None:
    check(value, number, path)
    assert 0 <= value <= 1, path


def optional(shape: Shape) -> Callable[[Any, str], None]:
    def inner(value: Any, path: str) -> None:
        if value is not None:
            check(value, shape, path)

    return inner


TIMES = {"mean": optional(number), "p50": optional(number), "p90": optional(number), "p99": optional(number)}
PLAN = {
    "schema": str,
    "model": str,
    "chip": str,
    "replicas": int,
    "strategy": {"tp": int, "pp": int, "ep": int, "cp": int, "dp": int},
    "dtype": str,
    "kv_dtype": str,
    "engine": {"name": str, "version": str},
}
TRAINING_PLAN = {name: shape for name, shape in PLAN.items() if name != "kv_dtype"} | {
    "load": {"seq": int, "global_batch": int}
}
SCORE = {
    "plan": PLAN,
    "feasible": bool,
    "usd_h": positive,
    "usd_per_mtok": positive,
    "output_tokens_per_s": positive,
    "ttft_s": dict,
    "tpot_s": dict,
    "label": str,
}
