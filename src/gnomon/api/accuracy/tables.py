"""The operator tables that fits are tested on: published ones, and our own; and why some are left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gnomon.api.accuracy.scores import LeftOut
from gnomon.calibrate import module_fit, training_fit, truth
from gnomon.calibrate.fit import HELD_OUT, read_table
from gnomon.calibrate.truth import Table
from gnomon.cost.rows import shape_of
from gnomon.cost.work import work
from gnomon.errors import GnomonError
from gnomon.graph.dtypes import product
from gnomon.load import chip as find_chip
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

LEAST_US = 20.0
"""Of published tables, shorter rows say more of how they were timed."""
LEAST_ROWS, LEAST_OWN_ROWS = 500, 24
MOST_ROWS = 600
"""Of a table, chosen the same every time: more do not move its errors."""
SHORT_US, HOST_US, SHORT_SHARE = 5.0, 50.0, 0.1
"""A table is held back by the host where nine tenths of what the chip could do in `SHORT_US` took `HOST_US`."""
TOO_QUICK, TOO_QUICK_CACHED, TOO_MANY = 0.95, 0.7, 0.02
"""Rows that beat the data sheet cannot be: its arithmetic by a twentieth, its memory by more than caches explain. A
table with more than a few such rows is left out."""
OURS = "ours"


def published(folder: Path, left: LeftOut) -> Iterator[tuple[Table, Chip]]:
    """Groups of the published tables that can be tested on, cut to so many rows; the others are counted."""
    for name in truth.READERS:
        for table in truth.tables(folder, name):
            try:
                chip = find_chip(table.chip)
                reason = _unfit(table, chip)
            except (GnomonError, KeyError) as error:
                reason = f"refused: {error.message if isinstance(error, GnomonError) else error}"
            if reason:
                left.add(table.name, reason, table.rows)
            else:
                long = table.columns["time_us"] >= LEAST_US
                yield cut(picked(table, np.flatnonzero(long))), chip


def measured(folder: Path, left: LeftOut) -> Iterator[tuple[Table, Chip]]:
    """Groups of the tables of one folder of our own measurements."""
    info = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    chip = find_chip(info["chip"])
    for path in sorted(folder.glob("*.csv")):
        for (kind, dtype), columns in sorted(_own(path).items()):
            framework = "torch" if path.name in ("torch.csv", "modules.csv") else "vllm"
            table = Table(
                source=OURS,
                chip=chip.name,
                framework=framework,
                version=str(info["versions"].get(framework, "")),
                kind=kind,
                dtype=dtype,
                columns=columns,
                kernels=(),
            )
            if kind not in HELD_OUT or table.rows < LEAST_OWN_ROWS:
                left.add(f"{table.name} ({path.name})", f"fewer than {LEAST_OWN_ROWS} rows", table.rows)
            else:
                yield cut(table), chip


def _own(path: Path) -> dict[tuple[str, str], Mapping[str, Floats]]:
    """The groups of one of our tables, as its own fit takes them."""
    if path.name == "modules.csv":
        found = module_fit.grouped(path)
        return {key: {name: np.array([row[name] for row in rows]) for name in rows[0]} for key, rows in found.items()}
    tables: dict[tuple[str, str], Mapping[str, Floats]] = dict(read_table(path))
    if path.name == "torch.csv":
        kept = {key: columns for key, columns in tables.items() if key[0] != "elementwise"}
        return {
            key: {name: values[columns["time_us"] >= training_fit.LEAST_US] for name, values in columns.items()}
            for key, columns in kept.items()
        }
    if path.name == "mixers.csv":  # the rest of it is only checked, never fitted
        return {key: columns for key, columns in tables.items() if key[0] == "gemm" or key[0].startswith("scan")}
    return tables


def least_us(table: Table, chip: Chip) -> tuple[Floats, Floats]:
    """The least that each row's arithmetic, and its bytes, can take by the data sheet."""
    sizes = shape_of(table.kind, {name: values for name, values in table.columns.items() if name != "time_us"})
    flops, moved = work(table.kind, table.dtype, sizes)
    rate = chip.matrix_rate("bf16" if table.kind.startswith("attention") else product(table.dtype).multiplied)
    return flops / rate * 1e6, moved / chip.memory_bandwidth_bytes_s * 1e6


def _unfit(table: Table, chip: Chip) -> str:
    times = table.columns["time_us"]
    long = times >= LEAST_US
    if long.sum() < LEAST_ROWS:
        return f"fewer than {LEAST_ROWS} rows above {LEAST_US:g} us"
    arithmetic, streaming = least_us(table, chip)
    short = np.maximum(arithmetic, streaming) < SHORT_US
    if short.mean() > SHORT_SHARE and np.quantile(times[short], 0.1) > HOST_US:
        return f"held back by the host: never under {times.min():.0f} us"
    quick = times < TOO_QUICK * arithmetic
    if table.kind != "moe":  # how many experts are visited, and so how much is read, is not in the table
        quick |= times < TOO_QUICK_CACHED * streaming
    impossible = float(quick[long].mean())
    return f"{impossible:.0%} of its rows beat the chip's peak" if impossible > TOO_MANY else ""


def picked(table: Table, places: NDArray[np.int64]) -> Table:
    return replace(table, columns={name: values[places] for name, values in table.columns.items()})


def cut(table: Table, most: int = MOST_ROWS) -> Table:
    """At most so many rows."""
    if table.rows <= most:
        return table
    return picked(table, np.sort(np.random.default_rng(0).permutation(table.rows)[:most]))
