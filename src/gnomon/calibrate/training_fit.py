"""From the table of `tools.training_kernels` to a framework's families and its kernels' efficiencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import fit_family
from gnomon.calibrate.table import read_rows, read_table
from gnomon.cost.kernels import kernel_model
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

FRAMEWORK = "torch"
LEAST_US = 30.0
"""Shorter calls, launched one by one, may have waited for the host."""


def families(path: Path, chip: Chip, gemms: Path | None = None) -> dict[str, Any]:
    """GEMMs and whole-sequence attention, under the framework's own family names."""
    return {
        f"{kind}.{dtype}.{FRAMEWORK}": fit_family(kind, dtype, columns, chip).to_dict()
        for (kind, dtype), columns in sorted(tables(path, gemms).items())
    }


def tables(path: Path, gemms: Path | None = None) -> dict[tuple[str, str], dict[str, Floats]]:
    """What the families are fitted to. `gemms` is a table of the framework's plain GEMMs in captured graphs, with
    few rows too, as in decodes."""
    found, plain = {}, read_table(gemms) if gemms else {}
    for key, columns in read_table(path).items():
        if key[0] != "elementwise":
            long = columns["time_us"] >= LEAST_US
            rows = {name: values[long] for name, values in columns.items()}
            if key in plain:
                rows = {name: np.concatenate((values, plain[key][name])) for name, values in rows.items()}
            found[key] = rows
    return found


def efficiencies(
    path: Path, chip: Chip, elementwise: Mapping[str, float], least_us: float = 3 * LEAST_US
) -> dict[str, float]:
    """Throughput of each streaming kernel relative to a plain one in the chip's profile, where it takes `least_us`."""
    plain = kernel_model("elementwise").seconds
    found: dict[str, list[float]] = defaultdict(list)
    for row in read_rows(path):
        if row["op"] == "elementwise" and float(row["time_us"]) >= least_us:
            moved = {name: np.array([float(row[name])]) for name in ("bytes_read", "bytes_written")}
            expected = float(plain(moved, "bf16", chip, elementwise)[0]) - elementwise["launch_us"] * 1e-6
            took = float(row["time_us"]) * 1e-6 - elementwise["launch_us"] * 1e-6
            found[row["kernel"]].append(expected / took)
    return {name: round(float(np.median(values)), 3) for name, values in sorted(found.items())}
