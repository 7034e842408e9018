"""From the table of `gnomon.calibrate.training` to a framework's families, the clock's law and its kernels' paces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.calibrate.fit import fit_family, read_rows, read_table
from gnomon.cost.clock import ATTENTION, BURST, LIMIT
from gnomon.cost.kernels import kernel_model
from gnomon.errors import CalibrationError
from gnomon.spec import Chip

FRAMEWORK = "torch"
LEAST_US = 30.0
"""Shorter calls, launched one by one, may have waited for the host."""
HELD = 1.04
"""Work that is this much slower for seconds on end than at first was held back by the power limit."""


def families(path: Path, chip: Chip, products: Path | None = None) -> dict[str, Any]:
    """Products and whole-sequence attention, under names of the framework's own.

    `products` is a table of the framework's plain products in captured graphs: of few rows too, as decodes have them.
    """
    found, plain = {}, read_table(products) if products else {}
    for key, columns in sorted(read_table(path).items()):
        kind, dtype = key
        if kind != "elementwise":
            long = columns["time_us"] >= LEAST_US
            rows = {name: values[long] for name, values in columns.items()}
            if key in plain:
                rows = {name: np.concatenate((values, plain[key][name])) for name, values in rows.items()}
            found[f"{kind}.{dtype}.{FRAMEWORK}"] = fit_family(kind, dtype, rows, chip).to_dict()
    return found


def clock(path: Path, chip: Chip, power: Mapping[str, float]) -> dict[str, float]:
    """The share of its limit the board holds, and what FLOPs would draw at full clock.

    Held back by a factor s, the same work drew s squared more at first: see `gnomon.cost.clock`.
    """
    rows = [row for row in read_rows(path) if row["op"] == "sustained"]
    held = [row for row in rows if float(row["time_us"]) > HELD * float(row["burst_us"])]
    if not held:
        raise CalibrationError("nothing was held back by the power limit", where=str(path), hint="Measure for longer.")
    limit = float(np.median([float(row["watts"]) for row in held]))
    joules: dict[str, list[float]] = defaultdict(list)
    for row in held:
        kind = row["kernel"].partition(" ")[0].partition(".")[0]
        burst_s, slower = float(row["burst_us"]) * 1e-6, float(row["time_us"]) / float(row["burst_us"])
        drawn = limit * slower**2 - power["active_w"] - power["j_per_byte"] * float(row["bytes"]) / burst_s
        joules[kind].append(drawn * burst_s / float(row["flops"]))
    flop, attended = (float(np.median(joules[kind])) for kind in ("gemm", "attention"))
    return {
        LIMIT: float(f"{limit / chip.tdp_w:.4g}"),
        BURST: float(f"{flop:.4g}"),
        ATTENTION: float(f"{attended / flop:.4g}"),
    }


def paces(path: Path, chip: Chip, elementwise: Mapping[str, float], least_us: float = 3 * LEAST_US) -> dict[str, float]:
    """How fast each kernel streams beside what the chip's profile says of a plain one, where it takes `least_us`."""
    plain = kernel_model("elementwise").seconds
    found: dict[str, list[float]] = defaultdict(list)
    for row in read_rows(path):
        if row["op"] == "elementwise" and float(row["time_us"]) >= least_us:
            moved = {name: np.array([float(row[name])]) for name in ("bytes_read", "bytes_written")}
            expected = float(plain(moved, "bf16", chip, elementwise)[0]) - elementwise["launch_us"] * 1e-6
            took = float(row["time_us"]) * 1e-6 - elementwise["launch_us"] * 1e-6
            found[row["kernel"]].append(expected / took)
    return {name: round(float(np.median(values)), 3) for name, values in sorted(found.items())}
