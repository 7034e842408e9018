"""Single operators: fits tested on whole shapes they had not seen, table by table and by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import expm1
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.api.accuracy.scores import LeftOut, Row, error_figures
from gnomon.api.accuracy.tables import measured, published
from gnomon.calibrate.fit import NINETY, FamilyFit, fit_family
from gnomon.calibrate.truth import Table
from gnomon.errors import GnomonError
from gnomon.spec import Chip

DECILES = 10

Tables = list[tuple[Table, Chip]]


def gathered(folder: Path, measurements: Path) -> tuple[Tables, LeftOut]:
    """Every table that can be tested on, ours first."""
    left, found = LeftOut(), Tables()
    for info in sorted(measurements.glob("*/measured.json")):
        found += measured(info.parent, left)
    return found + list(published(folder, left)), left


def operators(tables: Tables, left: LeftOut, *, progress: Callable[[int, int], None] | None = None) -> Row:
    """Held-out errors of each table; those that no fit takes are counted too."""
    rows = []
    for done, (table, chip) in enumerate(tables):
        if progress:
            progress(done, len(tables))
        try:
            rows.append(tested(table, fit_family(table.kind, table.dtype, table.columns, chip)))
        except (GnomonError, KeyError) as error:
            left.add(table.name, f"refused: {error}", table.rows)
    return {"tables": rows, "families": by_family(rows), "left_out": left.listed()}


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
    """Of each kind of operator: tables, and the middle and the worst of their mean errors, bands and widths."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["source"] if row["source"] == "ours" else "published", row["kind"]), []).append(row)
    found = []
    for (source, kind), some in sorted(groups.items()):
        means = [row["mean_error"] for row in some]
        worst = max(some, key=lambda row: row["mean_error"])
        found.append(
            {
                "source": source,
                "kind": kind,
                "tables": len(some),
                "rows": sum(row["rows"] for row in some),
                "mean_error": float(np.mean(means)),
                "worst_table": " ".join(str(worst[name]) for name in ("chip", "framework", "version", "dtype")),
                "worst_table_error": worst["mean_error"],
                "banded": sum(row["banded"] for row in some),
                "inside": sum(row["inside"] for row in some),
                "half_width": float(np.median([row["half_width"] for row in some])),
            }
        )
    return found
