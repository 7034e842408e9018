"""Our own operator tables that fits are tested on; `gnomon.calibrate.usable` has those of others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from gnomon.api.accuracy.scores import LeftOut
from gnomon.calibrate import module_fit, training_fit
from gnomon.calibrate.fit import HELD_OUT, read_table
from gnomon.calibrate.truth import Table
from gnomon.load import chip as find_chip
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

LEAST_OWN_ROWS = 24
MOST_ROWS = 1000
"""Of a published table, chosen the same every time: more do not move its errors."""
OURS = "ours"


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
                yield table, chip


def _own(path: Path) -> dict[tuple[str, str], Mapping[str, Floats]]:
    """The groups of one of our tables, as its own fit takes them."""
    if path.name == "modules.csv":
        found = {
            key: rows for key, rows in module_fit.grouped(path).items() if ".".join(key) not in module_fit.ELSEWHERE
        }
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
