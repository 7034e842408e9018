"""From a table of measurements to a profile: coefficients by family, and their error on shapes set aside."""

from __future__ import annotations

import csv
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.least_squares import fit
from gnomon.cost.kernels import KernelModel, kernel_model
from gnomon.cost.profile import SCHEMA
from gnomon.cost.rows import COLUMNS, shape_of
from gnomon.errors import CalibrationError
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

HELD_OUT = {
    "gemm": ("n", "k"),
    "moe": ("hidden", "inter", "tokens"),
    "attention_decode": ("heads", "kv_heads", "batch"),
    "attention_prefill": ("q_len", "kv_len"),
    "elementwise": ("bytes_read", "bytes_written"),
}
"""Rows that agree in these columns go to the same side, so that what is tested was never seen."""
FOLDS = 4
AT_LIMIT = 0.98
"""A card that draws this share of its limit is taken to be held back by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit:
    """Coefficients fitted on all rows; errors from fits that had not seen the rows they are tested on."""

    kind: str
    dtype: str
    rows: int
    coefficients: dict[str, float]
    errors: Floats

    def to_dict(self) -> dict[str, Any]:
        size = np.abs(np.expm1(self.errors))
        return {
            "coefficients": {name: float(f"{value:.5g}") for name, value in self.coefficients.items()},
            "rows": self.rows,
            "held_out": {
                "mean": round(float(size.mean()), 4),
                "median": round(float(np.median(size)), 4),
                "p90": round(float(np.quantile(size, 0.9)), 4),
                "bias": round(float(np.expm1(self.errors.mean())), 4),
            },
            "spread": round(float(self.errors.std()), 4),
            "shared": round(max(abs(float(self.errors.mean())), 0.01), 4),
        }


def read_table(path: Path) -> dict[tuple[str, str], dict[str, Floats]]:
    """Columns of a measured table by (operator, number format). Plain copies are left out: they are done by the
    copy engine's own kernels, quicker than anything a model runs."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    with path.open(newline="") as file:
        for line, row in enumerate(csv.DictReader(file), 2):
            if row.get("kernel") == "copy":
                continue
            if row.get("op") in COLUMNS:
                groups[row["op"], row["dtype"]].append(row)
            elif row.get("op") != "sustained":
                raise CalibrationError(f"unknown operator '{row.get('op')}'", where=f"{path} line {line}, column op")
    return {key: _columns(path, key[0], rows) for key, rows in groups.items()}


def _columns(path: Path, kind: str, rows: list[dict[str, str]]) -> dict[str, Floats]:
    names = (*COLUMNS[kind], "time_us")
    try:
        columns = {name: np.array([float(row[name]) for row in rows]) for name in names}
    except (KeyError, ValueError) as problem:
        raise CalibrationError(f"rows of {kind} are not whole: {problem}", where=str(path)) from None
    if np.any(columns["time_us"] <= 0):
        raise CalibrationError(f"rows of {kind} hold times that are not above zero", where=str(path))
    return columns


def _fold(kind: str, columns: Mapping[str, Floats]) -> np.ndarray[Any, Any]:
    keys = zip(*(columns[name] for name in HELD_OUT[kind]), strict=True)
    return np.array([zlib.crc32(repr([float(x) for x in key]).encode()) % FOLDS for key in keys])


def _fit_rows(model: KernelModel, shape: Shape, dtype: str, chip: Chip, seconds: Floats) -> dict[str, float]:
    return fit(lambda c: np.log(model.seconds(shape, dtype, chip, c) / seconds), model.ranges)


def _pick(shape: Shape, rows: np.ndarray[Any, Any]) -> Shape:
    return {name: values[rows] if values.size > 1 else values for name, values in shape.items()}


def fit_family(kind: str, dtype: str, columns: Mapping[str, Floats], chip: Chip) -> FamilyFit:
    """One family in one format: cross-checked by whole shapes, then fitted on everything."""
    model, shape, seconds = kernel_model(kind), shape_of(kind, columns), columns["time_us"] * 1e-6
    fold = _fold(kind, columns)
    errors = np.zeros(seconds.size)
    for part in range(FOLDS):
        aside = fold == part
        if aside.any() and not aside.all():
            c = _fit_rows(model, _pick(shape, ~aside), dtype, chip, seconds[~aside])
            errors[aside] = np.log(model.seconds(_pick(shape, aside), dtype, chip, c) / seconds[aside])
    c = _fit_rows(model, shape, dtype, chip, seconds)
    return FamilyFit(kind=kind, dtype=dtype, rows=seconds.size, coefficients=c, errors=errors)


def fit_table(path: Path, chip: Chip) -> dict[str, Any]:
    """All families of a table, as the `families` of a profile."""
    fits = (fit_family(kind, dtype, columns, chip) for (kind, dtype), columns in sorted(read_table(path).items()))
    return {f"{found.kind}.{found.dtype}": found.to_dict() for found in fits}


def fit_power(path: Path, chip: Chip) -> dict[str, float]:
    """Watts = a constant + joules of a FLOP x FLOP/s + joules of a byte x bytes/s, over sustained work.

    Work at the power limit says nothing, since its clock gave way. A table without sustained rows gets the
    whole power limit shared out by its data sheet: an upper bound.
    """
    with path.open(newline="") as file:
        sustained = [row for row in csv.DictReader(file) if row.get("op") == "sustained"]
    rows = [row for row in sustained if float(row["watts"]) < AT_LIMIT * chip.tdp_w]
    if not any(row["kernel"] == "rest" for row in rows) or len(rows) < 3:
        span = chip.tdp_w - chip.idle_w
        return {
            "idle_w": chip.idle_w,
            "active_w": chip.idle_w,
            "j_per_flop": span / chip.rate("bf16"),
            "j_per_byte": span / chip.memory_bandwidth_bytes_s,
        }
    seconds = np.array([float(row["time_us"]) for row in rows]) * 1e-6
    work = [np.ones(len(rows))] + [
        np.array([float(row[name]) for row in rows]) / seconds for name in ("flops", "bytes")
    ]
    scale = np.array([1.0, 1e12, 1e12])
    watts = np.array([float(row["watts"]) for row in rows])
    constant, flop, byte = np.maximum(np.linalg.lstsq(np.stack(work, 1) / scale, watts, rcond=None)[0], 0.0) / scale
    return {
        "idle_w": chip.idle_w,
        "active_w": float(f"{max(constant, chip.idle_w):.4g}"),
        "j_per_flop": float(f"{flop:.4g}"),
        "j_per_byte": float(f"{byte:.4g}"),
    }


def fit_profile(path: Path, chip: Chip, *, date: str, versions: Mapping[str, str]) -> dict[str, Any]:
    """A whole profile file from a table."""
    return {
        "schema": SCHEMA,
        "chip": chip.name,
        "date": date,
        "table": path.name,
        "versions": dict(versions),
        "families": fit_table(path, chip),
        "power": fit_power(path, chip),
    }
