"""Our own operator tables that fits are tested on; `gnomon.calibrate.usable` has those of others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from gnomon.accuracy.scores import LeftOut
from gnomon.calibrate import module_fit, pooled, training_fit
from gnomon.calibrate.fit import HELD_OUT
from gnomon.calibrate.truth import Table
from gnomon.load import chip as find_chip
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

LEAST_OWN_ROWS = 24
MOST_ROWS = 800
"""Rows of a published table, chosen the same every time: more do not move its errors."""
OURS = "ours"


def measured(folder: Path, left: LeftOut) -> Iterator[tuple[Table, Chip]]:
    """Groups of the tables of one folder of our own measurements, as the shipped profile is fitted to them."""
    info = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    chip = find_chip(info["chip"])
    for framework, groups in _groups(folder):
        for (kind, dtype), columns in sorted(groups.items()):
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
                left.add(table.name, f"fewer than {LEAST_OWN_ROWS} rows", table.rows)
            else:
                yield table, chip


Groups = Mapping[tuple[str, str], Mapping[str, Floats]]


def _groups(folder: Path) -> Iterator[tuple[str, Groups]]:
    """By framework: serving kernels of all tables, PyTorch's of training, and those of other networks."""
    yield "vllm", pooled.tables(folder)
    training, modules = folder / "torch.csv", folder / "modules.csv"
    if training.exists():
        yield "torch", training_fit.tables(training, folder / "kernels.csv")
    if modules.exists():
        yield "torch", module_fit.tables(modules)
