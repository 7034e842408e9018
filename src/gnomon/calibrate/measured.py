"""From a table of `gnomon calibrate` to a profile: what serving engines run, and PyTorch's own beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import LEAST_ROWS, fit_family, some
from gnomon.calibrate.power import board, loads
from gnomon.calibrate.table import MOST_US, grouped, number, read_rows
from gnomon.cost.kernels import MODELS
from gnomon.errors import CalibrationError, named_by
from gnomon.load.profile_file import SCHEMA, WIDEST
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

TORCH = "torch"
BY_ROWS = ("copy", "rms_norm", "layer_norm", "softmax")
"""PyTorch's kernels that go row by row, a block each: no streams where rows are few and wide. Copies as ever."""
LIBRARY = ("bf16", "fp16")
"""GEMMs in these formats run on cuBLAS, whoever calls it."""
LAUNCH, COPY, SAMPLING = "launch", "host_copy", "sampling"
WORST = 1.0
"""A fit that is off by more than this on shapes set aside is none: the table is of another chip, in another unit, or of
something else than it says."""
ENOUGH_ROWS = 20_000
"""Of one family: more take minutes and move nothing."""
Rows = Sequence[Mapping[str, str]]


def profile(
    path: Path,
    chip: Chip,
    *,
    date: str,
    versions: Mapping[str, str],
    notes: Sequence[str] = (),
    watts: Mapping[str, float] | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
    where: str = "",
) -> dict[str, Any]:
    """A whole profile file from a table, which may hold what several frameworks ran.

    `watts` are the board's figures as known before: they stay where the table holds no sustained work. Only `wanted`
    families are fitted. One that does not fit is left out, and a note says so; where none fits, nothing is made.
    `where` names the table in errors.
    """
    where = where or str(path)
    rows = read_rows(path)
    beside = figures(rows, where)
    sustained = any(row["op"] == "sustained" for row in rows)
    power = board(loads(rows, where), chip).figures if sustained or watts is None else dict(watts)
    found = families(rows, chip, where, wanted)
    if found.refused and not found.families:
        raise CalibrationError("; ".join(found.refused), where=where, hint=" ".join(dict.fromkeys(found.hints)))
    remarks = [*notes, *found.refused, *found.thinned]
    return {
        "schema": SCHEMA,
        "chip": chip.name,
        "date": date,
        "table": path.name,
        "versions": dict(versions),
        **({"notes": remarks} if remarks else {}),
        "families": found.families,
        "power": power,
        **({"beside": beside} if beside else {}),
    }


@dataclass(slots=True, kw_only=True)
class FittedTable:
    """The families of a table, and what its profile should say of them."""

    families: dict[str, Any] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    """What might fix those refused."""
    thinned: list[str] = field(default_factory=list)


def families(
    rows: Sequence[dict[str, str]], chip: Chip, where: str, wanted: Callable[[str], bool] = lambda _: True
) -> FittedTable:
    """A family for each operator and format, and one more under a framework's name where two were measured.

    A table that names no framework holds what serving engines run.
    """
    frameworks = sorted({row.get("framework") or "" for row in rows})
    found = FittedTable()
    for whose in sorted(frameworks, key=lambda name: (name == TORCH, name)):
        for (kind, dtype), columns in sorted(
            grouped(rows, where, whose, BY_ROWS if whose == TORCH else ("copy",)).items()
        ):
            name = f"{kind}.{dtype}"
            if kind not in MODELS or columns["time_us"].size < LEAST_ROWS or not wanted(name):
                continue
            own = whose == TORCH and not (kind == "gemm" and dtype in LIBRARY)
            with named_by(where):
                made = _fitted(kind, dtype, columns, chip, found)
            if made is not None:
                found.families.setdefault(name, made)
                if own:
                    found.families[f"{name}.{TORCH}"] = made
    found.families = dict(sorted(found.families.items()))
    return found


def _fitted(
    kind: str, dtype: str, columns: Mapping[str, Floats], chip: Chip, found: FittedTable
) -> dict[str, Any] | None:
    """One family, of as many rows as it takes; nothing, and the reason kept, where it does not fit."""
    name, rows = f"{kind}.{dtype}", columns["time_us"].size
    if rows > ENOUGH_ROWS:
        kept = some(rows, ENOUGH_ROWS)
        columns = {column: values[kept] for column, values in columns.items()}
        found.thinned.append(f"{name} is fitted to {ENOUGH_ROWS:,} of its {rows:,} rows, drawn evenly")
    try:
        made = fit_family(kind, dtype, columns, chip)
    except CalibrationError as problem:
        found.refused.append(f"{name} is left out: {problem.message}")
        found.hints.append(problem.hint)
        return None
    if made.off > WORST or made.spread > WIDEST:
        found.refused.append(f"{name} is left out: off by {made.off:.0%} (median) on shapes set aside")
        found.hints.append(f"Were they measured on {chip.name}, in microseconds?")
        return None
    return made.to_dict()


def figures(rows: Rows, where: str) -> dict[str, dict[str, float]]:
    """Plain figures of what no kernel model prices: launches, copies to and from the host, the choice of tokens."""
    launches: dict[str, float] = {}
    copies, sampled = defaultdict(list), defaultdict(list)
    for row in (row for row in rows if row["op"] in (LAUNCH, COPY, SAMPLING)):
        kernel, time_us = row["kernel"], number(row, "time_us", where, most=MOST_US)
        if row["op"] == LAUNCH:
            graph = f"graph_of_{number(row, 'batch', where, least=1.0):g}_us" if kernel == "graph" else ""
            launches.setdefault(graph or f"{kernel}_us", time_us)
        elif row["op"] == COPY:
            copies[kernel].append((number(row, "bytes", where, least=1.0), time_us))
        else:
            sampled[f"{kernel}_us_per_mib"].append(time_us / (number(row, "bytes_read", where, least=1.0) / 2**20))
    found: dict[str, dict[str, float]] = {
        LAUNCH: {name: _round(value) for name, value in launches.items()},
        COPY: {name: _round(value) for kernel, each in copies.items() for name, value in _line(kernel, each)},
        SAMPLING: {name: _round(float(np.median(each))) for name, each in sampled.items()},
    }
    return {name: each for name, each in found.items() if each}


def _line(kernel: str, copies: list[tuple[float, float]]) -> list[tuple[str, float]]:
    """Bytes per second of the largest copy, and microseconds of the smallest."""
    (_, least_us), (size, most_us) = min(copies), max(copies)
    return [(f"{kernel}_bytes_s", size / (most_us * 1e-6)), (f"{kernel}_us", least_us)]


def _round(value: float) -> float:
    return float(f"{value:.4g}")
