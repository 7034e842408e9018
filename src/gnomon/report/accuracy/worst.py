"""Where predictions are furthest off, said before anything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gnomon.report.accuracy.grid import NOTHING, grid
from gnomon.report.accuracy.lists import TABLE, value

Row = Mapping[str, Any]
MOST = 5
"""Of each kind of thing."""


def worst(payload: Mapping[str, Any]) -> str:
    """Tables, steps, deployments and runs with the largest errors; nothing where nothing was compared."""
    found = [*_tables(payload), *_steps(payload), *_groups(payload, "deployments", "deployment")]
    found += _groups(payload, "runs", "training run")
    heads = ("what", "which", "measured", "predicted", "rows", "error")
    return grid([heads, *found], "<<>>>>") if found else ""


def _tables(payload: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """By mean error, on shapes that the fit had not seen."""
    for row in _largest(payload["operators"]["tables"], "mean_error"):
        yield "operator, mean", " ".join(str(row[name]) for name in TABLE if row[name]), *_mean(row)


def _steps(payload: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """One by one."""
    for row in _largest(payload["steps"]["rows"], "error"):
        which = f"{row['model']} in {row['dtype']} on {row['chip']}: {row['detail']}"
        yield "step, ours", which, value(row, "measured"), value(row, "predicted"), "1", f"{row['error']:+.1%}"


def _groups(payload: Mapping[str, Any], section: str, title: str) -> Iterator[Sequence[str]]:
    """By mean error, as the page's own table has them."""
    for row in _largest(payload[section]["summaries"], "mean_error"):
        named = (str(row[name]) for name in ("group", "source", "chip", "model") if name in row)
        yield f"{title}, mean", f"{', '.join(named)}: {row['what']}", *_mean(row)


def _mean(row: Row) -> tuple[str, ...]:
    return NOTHING, NOTHING, f"{row['rows']:,}", f"{row['mean_error']:.1%}"


def _largest(rows: Sequence[Row], name: str) -> list[Row]:
    return sorted(rows, key=lambda row: -abs(float(row[name])))[:MOST]
