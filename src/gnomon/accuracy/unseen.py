"""Chips that no fit has seen: coefficients of the nearest other chips under the same framework, and this chip's data
sheet. The nearest are those whose kernels run there, as a donor profile's are (`cost/transfer.py`); else those of the
same maker; else all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gnomon.accuracy.operators import FAILURES, Tables, about
from gnomon.accuracy.scores import LeftOut, Row, error_figures
from gnomon.calibrate.least_squares import fit
from gnomon.calibrate.truth import Table
from gnomon.calibrate.usable import cut
from gnomon.cost.kernels import KernelModel, kernel_model
from gnomon.cost.rows import shape_of
from gnomon.engines.vllm.kernels import published_kernel
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

EACH = 300
"""Rows of each chip that coefficients are fitted to: all chips count the same."""

Part = tuple[Shape, str, Chip, Floats]


def unseen_chips(tables: Tables, left: LeftOut, *, progress: Callable[[int, int], None] | None = None) -> list[Row]:
    """Each chip predicted from the others, one framework, kind and format at a time; residuals are not carried over."""
    groups = _groups(tables)
    found = []
    for done, (_, some) in enumerate(sorted(groups.items())):
        if progress:
            progress(done, len(groups))
        for chip in sorted(some):
            try:
                found.append(_predicted(chip, some))
            except FAILURES as error:
                left.add(some[chip][0].name, f"not predicted from other chips: {error}", some[chip][0].rows)
    return found


def _predicted(chip: str, some: Mapping[str, tuple[Table, Chip]]) -> Row:
    table, spec = some[chip]
    donors = nearest(spec, [seen for name, (_, seen) in sorted(some.items()) if name != chip])
    others = [_part(some[donor.name][0], donor, EACH) for donor in donors]
    model = kernel_model(table.kind)
    errors = _errors(model, _part(table, spec), _joint(model, others))
    return about(table) | {"from": [donor.name for donor in donors]} | error_figures(np.expm1(errors))


def nearest(chip: Chip, others: list[Chip]) -> list[Chip]:
    """Those of the same generation, or of the same maker, or all; the first of these that there are."""
    alike = [one for one in others if one.generation == chip.generation]
    return alike or [one for one in others if one.vendor == chip.vendor] or others


def _groups(tables: Tables) -> dict[tuple[str, ...], dict[str, tuple[Table, Chip]]]:
    """By framework, kind, format and, of experts, kernel the newest, longest table of each chip, where two chips or
    more have one."""
    groups: dict[tuple[str, ...], dict[str, tuple[Table, Chip]]] = {}
    for table, chip in sorted(tables, key=lambda pair: (pair[0].version, pair[0].rows)):
        kernel = published_kernel(table.variant) if (table.framework, table.kind) == ("vllm", "moe") else ""
        groups.setdefault((table.framework, table.kind, table.dtype, kernel), {})[chip.name] = (table, chip)
    return {key: some for key, some in groups.items() if len(some) > 1}


def _part(table: Table, chip: Chip, most: int | None = None) -> Part:
    table = cut(table, most)
    sizes = {name: values for name, values in table.columns.items() if name != "time_us"}
    return shape_of(table.kind, sizes), table.dtype, chip, table.columns["time_us"] * 1e-6


def _joint(model: KernelModel, parts: list[Part]) -> dict[str, float]:
    """Coefficients that serve all these chips together."""
    known: dict[str, Any] = dict(model.ranges)
    if any(name in shape for shape, *_ in parts for name in model.some):
        known |= model.some
    return fit(lambda c: np.concatenate([_errors(model, part, c) for part in parts]), known)


def _errors(model: KernelModel, part: Part, c: dict[str, float]) -> Floats:
    shape, dtype, chip, seconds = part
    return np.asarray(np.log(model.seconds(shape, dtype, chip, c) / seconds))
