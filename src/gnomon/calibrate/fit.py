"""From a table of measurements to a profile: coefficients by family, and their error on shapes set aside."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.calibrate.least_squares import fit
from gnomon.calibrate.residual_fit import fit_residual
from gnomon.cost.kernels import KernelModel, kernel_model
from gnomon.cost.residual import Residual
from gnomon.cost.rows import shape_of
from gnomon.errors import CalibrationError
from gnomon.graph.mixer_ops import MIXINGS
from gnomon.graph.ops import Shape
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
FOLDS = 4
MOST_ROWS = 1500
"""More rows do not move a dozen coefficients."""
MIN_GAIN = 0.97
"""A residual that does not lower the error on unseen shapes to this is left out."""
NINETY = 1.645
"""Standard deviations of a normal distribution that 90% lie within."""
SHARED = 0.25
"""The least part of its spread that a family's operators share."""
LEAST_ROWS = 12
"""Fewer rows than this cannot be split and fitted."""


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
    def off(self) -> float:
        """The median error, the same for half and for twice the measured time: 1 is a factor of two."""
        return float(np.expm1(np.median(np.abs(self.errors))))

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
        corrected = {"residual": self.residual.to_dict()} if self.residual else {}
        return {
            "coefficients": {name: float(f"{value:.5g}") for name, value in self.coefficients.items()},
            **corrected,
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


def _fold(kind: str, columns: Mapping[str, Floats]) -> np.ndarray[Any, Any]:
    """Shapes, or whole models where a table names them, assigned to folds in an order independent of
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
        kept = some(seconds.size, MOST_ROWS)
        shape, seconds = _pick(shape, kept), seconds[kept]
    ranges = {name: (start.get(name, first), least, most) for name, (first, least, most) in known.items()}
    return fit(lambda c: np.log(model.seconds(shape, dtype, chip, c) / seconds), ranges)


def some(rows: int, most: int) -> np.ndarray[Any, Any]:
    """Places of `most` of so many rows, the same ones every time. Drawn, since every tenth row of a table that goes
    through its sizes in turn may hold one size alone."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


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
    plain, corrected = np.zeros(seconds.size), np.zeros(seconds.size)
    for part in range(FOLDS):
        aside = fold == part
        if aside.any() and not aside.all():
            seen = _pick(shape, ~aside)
            c = _fit_rows(model, seen, dtype, chip, seconds[~aside], start or {})
            surface = _left_over(model, seen, dtype, chip, c, seconds[~aside])
            unseen = _pick(shape, aside)
            plain[aside] = np.log(model.seconds(unseen, dtype, chip, c) / seconds[aside])
            corrected[aside] = plain[aside] + (np.log(surface.factor(unseen)) if surface else 0.0)
    c = _fit_rows(model, shape, dtype, chip, seconds, start or {})
    better = np.abs(corrected).mean() < MIN_GAIN * np.abs(plain).mean()
    return FamilyFit(
        kind=kind,
        dtype=dtype,
        coefficients=c,
        residual=_left_over(model, shape, dtype, chip, c, seconds) if better else None,
        errors=corrected if better else plain,
        measured_s=seconds,
        fold=fold,
    )


def _left_over(
    model: KernelModel, shape: Shape, dtype: str, chip: Chip, c: Mapping[str, float], seconds: Floats
) -> Residual | None:
    return fit_residual(model.axes, shape, np.log(seconds / model.seconds(shape, dtype, chip, c)))
