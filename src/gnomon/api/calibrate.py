"""This machine's GPU, measured operator by operator and fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnomon import catalog
from gnomon.api.results import Result
from gnomon.calibrate.collect import FAMILIES, collect, torch_module
from gnomon.calibrate.fit import fit_table
from gnomon.errors import unknown_name

BUDGET_S = 480.0


@dataclass(frozen=True, kw_only=True)
class Calibrated(Result):
    """A table of measurements and what was fitted to it; errors are on shapes the fit had not seen."""

    SCHEMA = "calibrate"
    title: str
    chip: str
    table: str
    rows: Mapping[str, int]
    families: Mapping[str, Any]


def calibrate(
    out: str | Path,
    *,
    families: Sequence[str] | None = None,
    budget_s: float = BUDGET_S,
    progress: Callable[[int, int, str], None] | None = None,
) -> Calibrated:
    """Measure the first GPU into the CSV file `out`, which a later call goes on with, and fit each family.

    Predictions go on using the shipped profiles. Needs torch and a GPU that the catalog knows. `budget_s`
    bounds the measuring, in seconds.
    """
    chosen = FAMILIES if families is None else tuple(families)
    for name in chosen:
        if name not in FAMILIES:
            raise unknown_name("family of operators", name, FAMILIES)
    chip = catalog.chip(str(torch_module().cuda.get_device_name(0)))
    path = Path(out)
    rows = collect(path, chosen, budget_s=budget_s, progress=progress)
    return Calibrated(
        title=f"{chip.name}: {rows['kept'] + rows['measured']:,} operators measured",
        chip=chip.name,
        table=str(path),
        rows=rows,
        families=fit_table(path, chip),
    )
