"""From a table of measurements to a profile: coefficients by family, and their error on shapes set aside."""

from __future__ import annotations

import csv
import io
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.least_squares import fit
from gnomon.calibrate.power import board, loads
from gnomon.calibrate.residual_fit import fit_residual
from gnomon.cost.kernels import KernelModel, kernel_model
from gnomon.cost.residual import Residual
from gnomon.cost.rows import COLUMNS, kind_of, shape_of
from gnomon.errors import CalibrationError
from gnomon.graph.mixer_ops import MIXINGS
from gnomon.graph.ops import Shape
from gnomon.load.files import read_text
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

HELD_OUT = {
    "gemm": ("n", "k"),
    "gemm_unaligned": ("n", "k"),
    "conv": ("n", "k"),
    "conv_few": ("n", "k"),
    "conv_depthwise": ("n", "k"),
    "moe": ("hidden", "inter", "experts", "topk"),
    "attention_decode": ("heads", "kv_heads", "batch"),
    "attention_prefill": ("q_len", "kv_len"),
    "attention_forward": ("q_len", "kv_len"),
    "attention_backward": ("q_len", "kv_len"),
    "mla_decode": ("heads", "kv_len"),
    "index_scores": ("q_len", "kv_len"),
    **{f"scan_{phase}_{mixer}": ("heads", "tokens") for phase in ("prefill", "decode") for mixer in MIXINGS},
    "elementwise": ("bytes_read", "bytes_written"),
    "algebra": ("flops", "steps"),
}
"""Rows that agree in these columns go to the same side, so that what is tested was never seen."""
OPTIONAL: dict[str, tuple[str, Callable[[Mapping[str, str]], str]]] = {
    "value_dim": ("attention", lambda row: row["head_dim"]),
    "window": ("attention", lambda row: row["kv_len"]),
    "state_bytes": ("scan", lambda _: "2"),
    "tokens": ("elementwise", lambda _: "0"),
    "batch": ("gemm", lambda _: "1"),
}
"""Columns that some rows of some kinds have, and what stands there where they do not."""
UNPRICED = ("sustained", "launch", "host_copy", "sampling")
"""What tables hold beside operators."""
FOLDS = 4
WORK = ("flops", "bytes")
MOST_ROWS = 1500
"""More rows do not move a dozen coefficients."""
WORTH = 0.97
"""A residual that does not lower the error on unseen shapes to this is left out."""
NINETY = 1.645
"""Standard deviations of a normal distribution that 90% lie within."""
SHARED = 0.25
"""The least part of its spread that a family's operators share."""
LEAST_ROWS = 12
"""Fewer rows than this cannot be split and fitted."""
LARGEST = 1e15
MAX_BYTES = 256 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit:
    """Coefficients and residual fitted on all rows; errors from fits that had not seen the rows they are tested on."""

    kind: str
    dtype: str
    coefficients: dict[str, float]
    residual: Residual | None
    errors: Floats
    """log(predicted / measured), held out, row by row."""
    measured_s: Floats
    fold: np.ndarray[Any, Any]

    @property
    def spread(self) -> float:
        return spread_of(self.errors)

    @property
    def inside(self) -> np.ndarray[Any, Any]:
        """Which rows lie in the 90% band that the errors of the other folds make."""
        found = np.zeros(self.errors.size, bool)
        for part in np.unique(self.fold):
            aside = self.fold == part
            others = self.errors[~aside] if not aside.all() else self.errors
            found[aside] = np.abs(self.errors[aside]) <= NINETY * spread_of(others)
        return found

    def to_dict(self) -> dict[str, Any]:
        size = np.abs(np.expm1(self.errors))
        learnt = {"residual": self.residual.to_dict()} if self.residual else {}
        return {
            "coefficients": {name: float(f"{value:.5g}") for name, value in self.coefficients.items()},
            **learnt,
            "rows": int(self.errors.size),
            "held_out": {
                "mean": round(float(size.mean()), 4),
                "median": round(float(np.median(size)), 4),
                "p90": round(float(np.quantile(size, 0.9)), 4),
                "bias": round(float(np.expm1(self.errors.mean())), 4),
                "in_band": round(float(self.inside.mean()), 3),
            },
            "spread": round(self.spread, 4),
            "shared": round(min(max(abs(float(self.errors.mean())), SHARED * self.spread, 0.01), self.spread), 4),
        }


def spread_of(errors: Floats) -> float:
    """The spread of a normal distribution that holds as much as these do within 90%: a few rows far off, which every
    table has, widen it less than their squares would."""
    return max(float(np.quantile(np.abs(errors), 0.9)) / NINETY, 1e-3)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table of operators, as text."""
    try:
        text = read_text(path, MAX_BYTES)
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = list(reader)
    except csv.Error as problem:
        raise CalibrationError(f"is no table: {problem}", where=str(path)) from None
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise CalibrationError("has not as many fields as the header", where=f"{path} line {line}")
        kind = kind_of(row)
        if kind not in COLUMNS and kind not in UNPRICED:
            raise CalibrationError(f"unknown operator '{kind}'", where=f"{path} line {line}, column op")
    return rows


def read_table(
    path: Path, framework: str | None = None, without: Collection[str] = ("copy",)
) -> dict[tuple[str, str], dict[str, Floats]]:
    """Columns of a measured table by (operator, number format), of one framework or of all, without some
    kernels. Plain copies are done by the copy engine's own, quicker than anything a model runs."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in read_rows(path):
        if framework is not None and (row.get("framework") or "") != framework:
            continue
        if row.get("kernel") not in without and row["op"] not in UNPRICED:
            groups[kind_of(row), row["dtype"]].append(row)
    return {key: _columns(path, key[0], rows) for key, rows in groups.items()}


def _columns(path: Path, kind: str, rows: list[dict[str, str]]) -> dict[str, Floats]:
    names = [*COLUMNS[kind], "time_us"]
    for name, (family, usual) in OPTIONAL.items():
        if kind.startswith(family) and any(row.get(name) for row in rows):
            rows = [row | {name: row.get(name) or usual(row)} for row in rows]
            names.append(name)
    renamed = {"tokens": "rows"} if kind == "elementwise" else {}
    return {renamed.get(name, name): _column(path, kind, rows, name) for name in names}


def _column(path: Path, kind: str, rows: list[dict[str, str]], name: str) -> Floats:
    least = 0.0 if name.startswith("bytes") or name in (*WORK, "tokens") else 1e-3 if name == "time_us" else 1.0
    try:
        values = np.array([float(row[name]) for row in rows])
    except (KeyError, ValueError) as problem:
        raise CalibrationError(f"rows of {kind} have no {name}: {problem}", where=str(path)) from None
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= least) & (values <= LARGEST)))
    if bad.size:
        value = rows[int(bad[0])][name]
        raise CalibrationError(f"a row of {kind} has {name} '{value}'", where=str(path), hint="Remove or mend it.")
    return values


def _fold(kind: str, columns: Mapping[str, Floats]) -> np.ndarray[Any, Any]:
    """Shapes, or whole models where a table says whose they are, dealt out in an order that has nothing to do with
    their sizes. A table of a few models is split by shapes."""
    names = HELD_OUT[kind]
    if "model" in columns and np.unique(columns["model"]).size >= FOLDS:
        names = ("model",)
    keys = list(zip(*(columns[name].tolist() for name in names), strict=True))
    mixed = sorted(set(keys), key=lambda key: zlib.crc32(repr(list(key)).encode()))
    place = {key: number % FOLDS for number, key in enumerate(mixed)}
    return np.array([place[key] for key in keys])


def _fit_rows(
    model: KernelModel, shape: Shape, dtype: str, chip: Chip, seconds: Floats, start: Mapping[str, float]
) -> dict[str, float]:
    known = {**model.ranges, **{name: ends for name, ends in model.some.items() if name.partition("_")[0] in shape}}
    if seconds.size > MOST_ROWS:
        some = _some(seconds.size)
        shape, seconds = _pick(shape, some), seconds[some]
    ranges = {name: (start.get(name, first), least, most) for name, (first, least, most) in known.items()}
    return fit(lambda c: np.log(model.seconds(shape, dtype, chip, c) / seconds), ranges)


def _some(rows: int) -> np.ndarray[Any, Any]:
    """Places of so many rows as coefficients are fitted to, the same ones every time."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:MOST_ROWS])


def _pick(shape: Shape, rows: np.ndarray[Any, Any]) -> Shape:
    return {name: values[rows] if values.size > 1 else values for name, values in shape.items()}


def fit_family(
    kind: str, dtype: str, columns: Mapping[str, Floats], chip: Chip, *, start: Mapping[str, float] | None = None
) -> FamilyFit:
    """One family in one format: cross-checked by whole shapes, then fitted on everything.

    A residual is kept where it lowers the error on shapes it has not seen. `start` has coefficients to begin from in
    place of the model's own, such as those of another chip.
    """
    if columns["time_us"].size < LEAST_ROWS:
        raise CalibrationError(
            f"{columns['time_us'].size} rows of {kind} in {dtype} are too few to fit",
            hint=f"Give {LEAST_ROWS} or more.",
        )
    model, shape, seconds = kernel_model(kind), shape_of(kind, columns), columns["time_us"] * 1e-6
    fold = _fold(kind, columns)
    if np.unique(fold).size < 2:
        raise CalibrationError(
            f"all rows of {kind} in {dtype} are of one shape: no error can be told",
            hint=f"Vary {', '.join(HELD_OUT[kind])}.",
        )
    plain, learnt = np.zeros(seconds.size), np.zeros(seconds.size)
    for part in range(FOLDS):
        aside = fold == part
        if aside.any() and not aside.all():
            seen = _pick(shape, ~aside)
            c = _fit_rows(model, seen, dtype, chip, seconds[~aside], start or {})
            surface = _left_over(model, seen, dtype, chip, c, seconds[~aside])
            unseen = _pick(shape, aside)
            plain[aside] = np.log(model.seconds(unseen, dtype, chip, c) / seconds[aside])
            learnt[aside] = plain[aside] + (np.log(surface.factor(unseen)) if surface else 0.0)
    c = _fit_rows(model, shape, dtype, chip, seconds, start or {})
    better = np.abs(learnt).mean() < WORTH * np.abs(plain).mean()
    return FamilyFit(
        kind=kind,
        dtype=dtype,
        coefficients=c,
        residual=_left_over(model, shape, dtype, chip, c, seconds) if better else None,
        errors=learnt if better else plain,
        measured_s=seconds,
        fold=fold,
    )


def _left_over(
    model: KernelModel, shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float], seconds: Floats
) -> Residual | None:
    return fit_residual(model.axes, shape, np.log(seconds / model.seconds(shape, dtype, chip, c)))


def fit_table(path: Path, chip: Chip) -> dict[str, Any]:
    """All families of a table, as the `families` of a profile."""
    fits = (fit_family(kind, dtype, columns, chip) for (kind, dtype), columns in sorted(read_table(path).items()))
    return {f"{found.kind}.{found.dtype}": found.to_dict() for found in fits}


def fit_power(path: Path, chip: Chip) -> dict[str, float]:
    """What the sustained rows of a table say of the board."""
    return board(loads(read_rows(path), str(path)), chip).figures
