"""From a table of `gnomon calibrate` to a profile: what serving engines run, and PyTorch's own beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import LEAST_ROWS, fit_family, fit_power, read_rows, read_table
from gnomon.cost.kernels import MODELS
from gnomon.cost.profile_file import SCHEMA
from gnomon.spec import Chip

TORCH = "torch"
BY_ROWS = ("copy", "rms_norm", "layer_norm", "softmax")
"""PyTorch's kernels that go row by row, a block each: no streams where rows are few and wide. Copies as ever."""
LIBRARY = ("bf16", "fp16")
"""Products in these formats are cuBLAS's own, whoever calls it."""
Rows = Sequence[Mapping[str, str]]


def profile(
    path: Path,
    chip: Chip,
    *,
    date: str,
    versions: Mapping[str, str],
    notes: Sequence[str] = (),
    watts: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """A whole profile file from a table, which may hold what several frameworks ran.

    `watts` are the board's figures as known before: they stay where the table holds no sustained work.
    """
    rows = read_rows(path)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "chip": chip.name,
        "date": date,
        "table": path.name,
        "versions": dict(versions),
    }
    sustained = any(row["op"] == "sustained" for row in rows)
    power = fit_power(path, chip) if sustained or watts is None else dict(watts)
    return found | {
        **({"notes": list(notes)} if notes else {}),
        "families": families(path, chip),
        "power": power,
        **({"beside": beside} if (beside := figures(rows)) else {}),
    }


def families(path: Path, chip: Chip) -> dict[str, Any]:
    """A family for each operator and format, and one more under a framework's name where two were measured.

    A table that names no framework holds what serving engines run.
    """
    frameworks = sorted({row.get("framework") or "" for row in read_rows(path)})
    found: dict[str, Any] = {}
    for whose in sorted(frameworks, key=lambda name: (name == TORCH, name)):
        for (kind, dtype), columns in sorted(read_table(path, whose, BY_ROWS if whose == TORCH else ("copy",)).items()):
            if kind not in MODELS or columns["time_us"].size < LEAST_ROWS:
                continue
            made = fit_family(kind, dtype, columns, chip).to_dict()
            found.setdefault(f"{kind}.{dtype}", made)
            if whose == TORCH and not (kind == "gemm" and dtype in LIBRARY):
                found[f"{kind}.{dtype}.{TORCH}"] = made
    return dict(sorted(found.items()))


def figures(rows: Rows) -> dict[str, dict[str, float]]:
    """Plain figures of what no kernel model prices: launches, copies to and from the host, the choice of tokens."""
    launches, copies, sampled = defaultdict(list), defaultdict(list), defaultdict(list)
    for row in rows:
        if row["op"] == "launch":
            launches[f"{row['kernel']}_us" if row["kernel"] != "graph" else f"graph_of_{row['batch']}_us"].append(row)
        elif row["op"] == "host_copy":
            copies[row["kernel"]].append(row)
        elif row["op"] == "sampling":
            sampled[f"{row['kernel']}_us_per_mib"].append(float(row["time_us"]) / (float(row["bytes_read"]) / 2**20))
    found: dict[str, dict[str, float]] = {
        "launch": {name: _round(float(each[0]["time_us"])) for name, each in launches.items()},
        "host_copy": {name: _round(value) for kernel, each in copies.items() for name, value in _line(kernel, each)},
        "sampling": {name: _round(float(np.median(each))) for name, each in sampled.items()},
    }
    return {name: each for name, each in found.items() if each}


def _line(kernel: str, rows: Rows) -> list[tuple[str, float]]:
    """Bytes a second of the largest copy, and microseconds of the smallest."""
    ordered = sorted(rows, key=lambda row: float(row["bytes"]))
    last = ordered[-1]
    rate = float(last["bytes"]) / (float(last["time_us"]) * 1e-6)
    return [(f"{kernel}_bytes_s", rate), (f"{kernel}_us", float(ordered[0]["time_us"]))]


def _round(value: float) -> float:
    return float(f"{value:.4g}")
