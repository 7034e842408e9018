"""Measured and predicted, one figure or many: errors, bands, and what was left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from gnomon.errors import GnomonError
from gnomon.runner import ordered

Row = dict[str, Any]
Band = tuple[float, float] | None
Case = TypeVar("Case")
BY_GROUP = ("group", "what")


def compared(what: str, unit: str, measured: float, predicted: float, band: Band) -> Row:
    """One figure. An error is predicted over measured, less one; `inside` tells whether the 90% band held it."""
    low, high = band or (None, None)
    return {
        "what": what,
        "unit": unit,
        "measured": measured,
        "predicted": predicted,
        "low": low,
        "high": high,
        "inside": band[0] <= measured <= band[1] if band else None,
        "error": predicted / measured - 1,
    }


def summaries(rows: Iterable[Mapping[str, Any]], by: Sequence[str] = ("what",)) -> list[Row]:
    """Of every group of rows that agree in `by`: how far off, and how many of those with a band fell inside it."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return [dict(zip(by, key, strict=True)) | summary(found) for key, found in groups.items()]


def summary(rows: Sequence[Mapping[str, Any]]) -> Row:
    errors = np.array([row["error"] for row in rows], float)
    banded = [row for row in rows if row["inside"] is not None]
    widths = [(row["high"] - row["low"]) / 2 / row["predicted"] for row in banded]
    return error_figures(errors) | {
        "banded": len(banded),
        "inside": sum(row["inside"] for row in banded),
        "half_width": float(np.median(widths)) if widths else None,
    }


def error_figures(errors: np.ndarray[Any, Any]) -> Row:
    size = np.abs(errors)
    return {
        "rows": int(errors.size),
        "mean_error": float(size.mean()),
        "median_error": float(np.median(size)),
        "p90_error": float(np.quantile(size, 0.9)),
        "bias": float(errors.mean()),
        "worst": float(errors[size.argmax()]),
    }


class LeftOut:
    """Counts what could not be compared, by source and reason."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()

    def add(self, source: str, why: str, rows: int = 1) -> None:
        self._seen[source, why] += rows

    def listed(self) -> list[Row]:
        """Most rows first; equal ones by name."""
        found = sorted(self._seen.items(), key=lambda item: (-item[1], item[0]))
        return [{"source": source, "why": why, "rows": rows} for (source, why), rows in found]


def compare_all(
    cases: Sequence[Case],
    compare: Callable[[Case], Iterable[Row]],
    source: Callable[[Case], str],
    left: LeftOut,
    progress: Callable[[int, int], None] | None,
    jobs: int = 1,
) -> list[Row]:
    """The rows of all cases, compared in so many processes (more than one need a function of a module); those that
    Gnomon refuses are counted in `left`."""
    rows: list[Row] = []
    found = ordered(partial(_compared, compare), cases, jobs=jobs)
    for done, (case, outcome) in enumerate(zip(cases, found, strict=True)):
        if progress:
            progress(done, len(cases))
        if isinstance(outcome, str):
            left.add(source(case), f"refused: {outcome}")
        else:
            rows += outcome
    return rows


def _compared(compare: Callable[[Case], Iterable[Row]], case: Case) -> list[Row] | str:
    """The rows of a case, or why it is refused."""
    try:
        return list(compare(case))
    except GnomonError as error:
        return reason(error)


def tabulated(rows: Sequence[Row], order: Sequence[str], by: Sequence[str]) -> Row:
    """Rows with their summaries, by group in this order and by all of `by`."""
    totals, some = (sorted(summaries(rows, each), key=lambda row: order.index(row["group"])) for each in (BY_GROUP, by))
    return {"rows": rows, "totals": totals, "summaries": some}


def reason(error: GnomonError) -> str:
    """What an error says without its figures, so that equal ones count together."""
    return re.sub(r"\d[\d,.]*", "N", error.message)


def rounded(value: Any) -> Any:
    """Numbers as they are kept: five digits, so that another machine's last bit changes nothing."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
