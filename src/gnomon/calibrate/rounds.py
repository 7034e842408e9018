"""Which shapes to measure next: those the present fit is least certain of.

Fits to different parts of the rows are asked for the time of every candidate. Where they disagree, or where rows
nearby were off when they were set aside, a measurement tells most. One that is near a row already measured, or near
another choice, tells little and is passed over. The same rows give the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gnomon.calibrate.fit import FOLDS, _fit_rows, _fold, _pick
from gnomon.calibrate.shapes import Design, Task
from gnomon.cost.kernels import MODELS, kernel_model
from gnomon.cost.rows import COLUMNS, OPTIONAL, shape_of
from gnomon.errors import CalibrationError
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

MOST_ROWS = 160
"""Rows that a fit of a choice looks at."""
LEAST_ROWS = 16
NEAR = 1.0
"""Doublings of one size within which two shapes tell the same."""


def choose(
    design: Design, rows: Sequence[Mapping[str, str]], taken: set[str], chip: Chip, key: Callable[[Task], str]
) -> list[Task]:
    """The next `design.each` tasks, most telling first; evenly from the pool where too little is known to judge."""
    left = [task for task in design.pool if key(task) not in taken]
    if design.kind not in MODELS or len(rows) < LEAST_ROWS or len(left) <= design.each:
        return left[: design.each]
    measured = _columns(design.kind, rows)
    wanted = _columns(design.kind, [{name: str(value) for name, value in task[1].items()} for task in left])
    doubt = _doubt(design, measured, np.array([float(row["time_us"]) for row in rows]) * 1e-6, wanted, chip)
    return [left[i] for i in _apart(doubt, _places(wanted), _places(measured), design.each)]


def _columns(kind: str, rows: Sequence[Mapping[str, str]]) -> dict[str, Floats]:
    """Sizes by column; whole sequences have as many keys as queries."""
    usual = {"q_len": 1.0} | dict(OPTIONAL.get(kind, {}))
    names = [name for name in COLUMNS[kind] if name != "kv_len"] + (["kv_len"] if "kv_len" in COLUMNS[kind] else [])
    found: dict[str, Floats] = {}
    for name in names:
        other = (
            found.get("q_len", np.zeros(len(rows))) if name == "kv_len" else np.full(len(rows), usual.get(name, 1.0))
        )
        found[name] = np.array([float(row.get(name) or other[i]) for i, row in enumerate(rows)])
    return found


def _doubt(
    design: Design, measured: Mapping[str, Floats], seconds: Floats, wanted: Mapping[str, Floats], chip: Chip
) -> Floats:
    """How far fits to parts of the rows are apart on each candidate, and how far off rows like it were."""
    model = kernel_model(design.kind)
    part = _fold(design.kind, measured)
    shape, asked = shape_of(design.kind, measured), shape_of(design.kind, wanted)
    answers, errors = [], np.zeros(seconds.size)
    for fold in range(FOLDS):
        aside = part == fold
        if not aside.any() or aside.all():
            continue
        seen = np.flatnonzero(~aside)
        seen = seen[:: max(1, -(-seen.size // MOST_ROWS))]
        c = _fit_rows(model, _pick(shape, seen), design.dtype, chip, seconds[seen], {})
        answers.append(np.log(model.seconds(asked, design.dtype, chip, c)))
        errors[aside] = np.log(model.seconds(_pick(shape, aside), design.dtype, chip, c) / seconds[aside])
    if not answers:
        raise CalibrationError(f"all rows of {design.name} fall into one part")
    near = np.exp(-_squares(_places(wanted), _places(measured)) / (2 * NEAR**2))
    size = np.abs(errors)
    local = (near @ size + size.mean()) / (near.sum(axis=1) + 1.0)
    return np.asarray(np.hypot(np.std(answers, axis=0), local))


def _places(columns: Mapping[str, Floats]) -> Floats:
    return np.log2(np.stack(list(columns.values()), axis=1))


def _squares(one: Floats, other: Floats) -> Floats:
    return np.asarray(((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2))


def _apart(doubt: Floats, places: Floats, measured: Floats, count: int) -> list[int]:
    """The most doubtful, one after the other, each less so the nearer it is to what is or will be measured."""
    worth = doubt * (1 - np.exp(-_squares(places, measured).min(axis=1) / (2 * NEAR**2)))
    chosen: list[int] = []
    for _ in range(count):
        best = int(np.argmax(worth))
        chosen.append(best)
        worth *= 1 - np.exp(-_squares(places, places[best : best + 1])[:, 0] / (2 * NEAR**2))
        worth[best] = -1.0
    return chosen
