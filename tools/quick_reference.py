"""Kernels of `gnomon calibrate --quick` as the cards of shipped profiles ran them: `python -m tools.quick_reference`.

Takes them from the committed table of `gnomon calibrate` that the profile was fitted to, among others. The profile is
the middle of several tables: GEMMs are scaled by what it says of all such rows of this table, over what they took
(median), so that a factor is beside the profile and free of its error on single shapes. Writes
src/gnomon/calibrate/quick_reference.yaml.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gnomon.calibrate.collect import key
from gnomon.calibrate.quick import REFERENCE, SUSTAINED, TASKS, modelled_us
from gnomon.calibrate.shapes import Task
from gnomon.catalog import chip
from gnomon.cost.card import COMPUTE, MEMORY, NARROW
from gnomon.load.profiles import shipped_profile
from gnomon.spec import Chip

FOLDERS = ("measurements/h200-2026-11-15",)
BOUND = {COMPUTE: ("bf16", 1024, 16384), NARROW: ("fp8", 1024, 16384), MEMORY: ("bf16", 1, 64)}
"""Of the GEMMs that a factor is of: format, fewest and most rows; weights have 16 million values or more."""
WEIGHTS = 1 << 24


def _each() -> Iterator[tuple[str, Task]]:
    return ((name, task) for name, tasks in TASKS.items() for task in tasks)


def center(rows: Sequence[Mapping[str, str]], name: str, of: Chip) -> float:
    """What the shipped profile says of a table's GEMMs over what they took, median."""
    dtype, fewest, most = BOUND[name]
    ratios = []
    for row in rows:
        if (row["op"], row["dtype"], row["framework"], row["batch"]) != ("gemm", dtype, "torch", ""):
            continue
        m, n, k = (int(row[size]) for size in ("m", "n", "k"))
        if fewest <= m <= most and n * k >= WEIGHTS:
            kernel = "gemm_fp8" if dtype == "fp8" else "gemm"
            ours = modelled_us((kernel, {"dtype": dtype, "m": m, "n": n, "k": k}), of, shipped_profile(of))
            ratios.append(ours / float(row["time_us"]) if ours else 1.0)
    middle, spread = float(np.median(ratios)), float(np.std(np.log(ratios)))
    print(f"{name}: {len(ratios)} rows, profile over table {middle:.4f}, spread {spread:.4f}")
    return middle


def of_folder(folder: Path) -> tuple[str, dict[str, Any]]:
    info = json.loads((folder / "measured.json").read_text())
    with (folder / "calibration.csv").open() as file:
        rows = {row["task"]: row for row in csv.DictReader(file)}
    wanted = [key(task) for tasks in TASKS.values() for task in tasks]
    missing = [task for task in (*wanted, key(SUSTAINED)) if task not in rows]
    if missing:
        raise SystemExit(f"{folder}: no row of {missing[0]}")
    sustained = rows[key(SUSTAINED)]
    centers = {name: center(list(rows.values()), name, chip(info["chip"])) for name in (COMPUTE, NARROW, MEMORY)}
    scale = {key(task): centers.get(name, 1.0) if task[0].startswith("gemm") else 1.0 for name, task in _each()}
    return info["chip"], {
        "source": f"the same kernels on the card of the profile, {info['date']}",
        "profile_over_table": {name: round(value, 4) for name, value in centers.items()},
        "time_us": {task: round(float(rows[task]["time_us"]) * scale[task], 4) for task in wanted},
        "sustained": {name: float(sustained[name]) for name in ("time_us", "burst_us", "watts", "sm_hz")},
    }


def main() -> None:
    found = {"schema": "gnomon.quick-reference/1", "chips": dict(of_folder(Path(folder)) for folder in FOLDERS)}
    REFERENCE.write_text(yaml.safe_dump(found, sort_keys=False, width=120))


if __name__ == "__main__":
    main()
