"""Single operators: fits tested on whole shapes they had not seen, table by table and by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import expm1
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.accuracy.scores import LeftOut, Row, error_figures
from gnomon.accuracy.tables import MOST_ROWS, OURS, measured
from gnomon.calibrate.fit import NINETY, FamilyFit, fit_family
from gnomon.calibrate.truth import Table
from gnomon.calibrate.usable import LEAST_GRAPH_US, LEAST_ROWS, LEAST_US, published
from gnomon.errors import GnomonError
from gnomon.runner import ordered
from gnomon.spec import Chip

DECILES = 10
FAILURES = (GnomonError, KeyError, np.linalg.LinAlgError)
"""What a fit of one table may end in; the others go on."""

Tables = list[tuple[Table, Chip]]


def gathered(folder: Path, measurements: Path) -> tuple[Tables, LeftOut]:
    """Every table that can be tested on, ours first: of the folders that profiles are fitted to."""
    left, found = LeftOut(), Tables()
    for calibration in sorted(measurements.glob("*/calibration.csv")):
        found += measured(calibration.parent, left)
    return found + list(published(folder, left.add, MOST_ROWS, short=True)), left


def operators(
    tables: Tables, left: LeftOut, *, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> Row:
    """Held-out errors of each table; those that no fit takes are counted too. `jobs` processes share the work."""
    rows = []
    for done, ((table, _), found) in enumerate(zip(tables, ordered(_fitted, tables, jobs=jobs), strict=True)):
        if progress:
            progress(done, len(tables))
        if isinstance(found, str):
            left.add(table.name, found, table.rows)
        else:
            rows.append(found)
    rules = {"least_us": LEAST_US, "least_graph_us": LEAST_GRAPH_US, "least_rows": LEAST_ROWS, "most_rows": MOST_ROWS}
    return {"rules": rules, "tables": rows, "families": by_family(rows)}


def _fitted(pair: tuple[Table, Chip]) -> Row | str:
    """The figures of a table, or why there are none."""
    table, chip = pair
    try:
        return tested(table, fit_family(table.kind, table.dtype, table.columns, chip))
    except FAILURES as error:
        return f"refused: {error}"


def tested(table: Table, fit: FamilyFit) -> Row:
    """One table: its figures, and the same by tenth of its measured times."""
    parts = np.array_split(np.argsort(fit.measured_s, kind="stable"), DECILES)
    return about(table) | _figures(fit, slice(None)) | {"deciles": [_decile(fit, part) for part in parts]}


def about(table: Table) -> Row:
    names = ("source", "chip", "framework", "version", "kind", "dtype")
    return {name: getattr(table, name) for name in names}


def _figures(fit: FamilyFit, rows: Any) -> Row:
    inside = fit.inside[rows]
    return error_figures(np.expm1(fit.errors[rows])) | {
        "banded": int(inside.size),
        "inside": int(inside.sum()),
        "half_width": expm1(NINETY * fit.spread),
    }


def _decile(fit: FamilyFit, rows: Any) -> Row:
    seconds = fit.measured_s[rows]
    return {"from_s": float(seconds.min()), "to_s": float(seconds.max())} | _figures(fit, rows)


def by_family(rows: Iterable[Row]) -> list[Row]:
    """For each kind of operator the mean of its tables' figures, and the worst of them."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((OURS if row["source"] == OURS else "published", row["kind"]), []).append(row)
    return [{"source": source, "kind": kind} | _together(some) for (source, kind), some in sorted(groups.items())]


def _together(tables: list[Row]) -> Row:
    worst = max(tables, key=lambda row: float(row["mean_error"]))
    means = ("mean_error", "median_error", "p90_error", "bias")
    return {
        "tables": len(tables),
        **{name: sum(row[name] for row in tables) for name in ("rows", "banded", "inside")},
        **{name: float(np.mean([row[name] for row in tables])) for name in means},
        "worst": max((row["worst"] for row in tables), key=abs),
        "half_width": float(np.median([row["half_width"] for row in tables])),
        "worst_table": " ".join(str(worst[name]) for name in ("chip", "framework", "version", "dtype")),
        "worst_table_error": worst["mean_error"],
    }
