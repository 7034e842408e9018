"""What papers say of training steps, as data; nothing here is fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.catalog.base import DATA, packaged

FIGURES = ("tflops", "step_s", "states_gib", "activations_gib")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One run: the options that describe it, and the figures its source gives."""

    model: str
    on: str
    options: Mapping[str, Any]
    """Degrees, batches and the rest, as `simulate_training` takes them."""
    figures: Mapping[str, float]
    """Of `FIGURES`: TFLOP/s per GPU as the source counts them, seconds of a step, GiB of the first pipeline stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    name: str
    authors: str
    title: str
    year: int
    table: str
    address: str
    read_from: str
    counted: str
    """What counts as a FLOP, where figures are TFLOP/s."""
    recalled: tuple[str, ...]
    """Columns that are recalled, not read."""
    peers: tuple[Mapping[str, Any], ...]
    """Other predictors on the same rows: name, mean absolute error, and who says so."""
    notes: tuple[str, ...]
    runs: tuple[PublishedRun, ...]


def published_training() -> tuple[PublishedTable, ...]:
    """Every table, in the order of its file."""
    return tuple(_table(entry) for entry in packaged(DATA / "published" / "training.yaml"))


def _table(entry: dict[str, Any]) -> PublishedTable:
    shared, rows = entry.pop("all"), entry.pop("rows")
    given: dict[str, Any] = {"counted": ""} | entry
    given |= {name: tuple(entry.get(name, ())) for name in ("recalled", "peers", "notes")}
    return PublishedTable(**given, runs=tuple(_run(shared | row) for row in rows))


def _run(row: dict[str, Any]) -> PublishedRun:
    figures = {name: float(row.pop(name)) for name in FIGURES if name in row}
    model, chip, chips = row.pop("model"), row.pop("chip"), row.pop("chips")
    return PublishedRun(model=model, on=f"{chip}:{chips}", options=row, figures=figures)
