"""`gnomon accuracy`: the results that are stored, or computed again from the data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gnomon.accuracy import stored, truth
from gnomon.accuracy.coverage import coverage
from gnomon.accuracy.deployments import deployments
from gnomon.accuracy.narrow import Wanted, narrowed
from gnomon.accuracy.operators import Tables, gathered, operators
from gnomon.accuracy.published import training_steps
from gnomon.accuracy.runs import runs
from gnomon.accuracy.scores import LeftOut, Row, rounded
from gnomon.accuracy.steps import steps
from gnomon.accuracy.unseen import unseen_chips
from gnomon.errors import InputError, unknown_name
from gnomon.load import chip as find_chip
from gnomon.spec.answers import Result

CHECKOUT = Path(__file__).parents[3] / "measurements"
"""Where a checkout keeps what was measured; an installed package has none."""
TITLE = "Accuracy: predicted beside published and measured"
QUICK_TABLES = 6
"""In a hurry one operator table in so many is fitted."""

Tell = Callable[[int, int | None, str], None]


@dataclass(frozen=True, kw_only=True)
class Accuracy(Result):
    """Errors are predicted over measured, less one. Times in seconds, sizes in bytes."""

    SCHEMA = "accuracy"
    HIDDEN = frozenset({"narrowed_to"})
    title: str
    date: str
    """When it was computed."""
    quick: bool
    """Whether fewer rows were compared than the page has."""
    truth: tuple[Mapping[str, Any], ...]
    """The published tables it was computed from, by checksum."""
    operators: Mapping[str, Any]
    """Fits by table, on shapes they had not seen; by kind; what was left out."""
    unseen_chips: tuple[Mapping[str, Any], ...]
    """Each chip from the coefficients of others and its data sheet."""
    steps: Mapping[str, Any]
    """Steps and loads that we measured under a real engine."""
    deployments: Mapping[str, Any]
    """Published serving loads."""
    runs: Mapping[str, Any]
    """Published training runs."""
    published: tuple[Mapping[str, Any], ...]
    """Training tables of papers: where from, rows of measured beside predicted, and a summary of each quantity."""
    measured: tuple[Mapping[str, Any], ...]
    """Our own measured training steps, one table per folder."""
    coverage: tuple[Mapping[str, Any], ...]
    """How many measurements fell inside the 90% interval, of all and by engine and version."""
    profiles: tuple[str, ...]
    """The fitted profiles that training steps are predicted with."""
    narrowed_to: Mapping[str, str] = field(default_factory=dict)
    """The chip, framework, family or number format that all of it concerns, where only one was asked for."""


def accuracy(
    *,
    fresh: bool | str = False,
    quick: bool = False,
    chip: str | None = None,
    framework: str | None = None,
    family: str | None = None,
    dtype: str | None = None,
    jobs: int = 1,
    progress: Tell | None = None,
) -> Accuracy:
    """What is stored, or with `fresh` (needs the published tables, `GNOMON_TRUTH`) all of it again, or the part named.

    `quick` compares fewer tables, deployments and runs; `jobs` processes compare and fit. The others keep what concerns
    one chip, framework, operator family or number format.
    """
    if chip is not None:
        find_chip(chip)
    part = fresh if isinstance(fresh, str) else None
    if part is not None and quick:
        raise InputError("one part is recomputed from all of its rows", where="--part")
    found = computed(quick=quick, part=part, jobs=jobs, progress=progress) if fresh or quick else stored.load()
    given = {"chip": chip, "framework": framework, "family": family, "dtype": dtype}
    kept = narrowed(found, Wanted(**given))
    kept |= {"coverage": rounded(coverage(kept))}
    names = {one.name for one in fields(Accuracy)}
    return Accuracy(
        narrowed_to={name: word for name, word in given.items() if word is not None},
        **{name: _frozen(value) for name, value in kept.items() if name in names},
    )


def computed(
    *,
    quick: bool = False,
    part: str | None = None,
    measurements: Path = CHECKOUT,
    jobs: int = 1,
    progress: Tell | None = None,
) -> dict[str, Any]:
    """Everything again, as it is stored; or one of `PARTS`, the others and the date as they are stored."""
    if part is not None and part not in PARTS:
        raise unknown_name("part", part, PARTS, where="--part")
    folder, tell = truth.required(), progress or (lambda done, total, text: None)
    tell(0, None, "reading tables")
    truth.check(folder)
    chosen = tuple(PARTS) if part is None else (part,)
    tables = gathered(folder, measurements) if "operators" in chosen else (Tables(), LeftOut())
    work = _Work(folder, measurements, quick, jobs, tell, *tables)
    found = {} if part is None else stored.load()
    for name in chosen:
        found |= PARTS[name](work)
    found |= {
        "schema": stored.SCHEMA,
        "title": TITLE,
        "date": found.get("date", time.strftime("%Y-%m-%d")),
        "quick": quick,
        "truth": [{"file": path.name, "sha256": truth.checksum(path)} for path in truth.files(folder)],
    }
    return dict(rounded({name: found[name] for name in ORDER} | {"coverage": coverage(found)}))


@dataclass(frozen=True, slots=True)
class _Work:
    """What parts are computed from, and by how many processes."""

    folder: Path
    measurements: Path
    quick: bool
    jobs: int
    tell: Tell
    tables: Tables
    """Of operators, read first: a broken one is found before anything is computed."""
    left: LeftOut
    """Tables that are left out."""

    def ticks(self, text: str) -> Callable[[int, int], None]:
        return lambda done, total: self.tell(done, total, text)


def _training(work: _Work) -> Row:
    work.tell(0, None, "training steps")
    return training_steps(work.measurements)


def _steps(work: _Work) -> Row:
    work.tell(0, None, "steps")
    return {"steps": steps(work.measurements)}


def _deployments(work: _Work) -> Row:
    ticks = work.ticks("deployments")
    found = deployments(work.folder, work.measurements, quick=work.quick, jobs=work.jobs, progress=ticks)
    return {"deployments": found}


def _runs(work: _Work) -> Row:
    return {"runs": runs(work.folder, quick=work.quick, jobs=work.jobs, progress=work.ticks("training runs"))}


def _operators(work: _Work) -> Row:
    tables = work.tables[::QUICK_TABLES] if work.quick else work.tables
    fitted = operators(tables, work.left, jobs=work.jobs, progress=work.ticks("operators"))
    unseen = unseen_chips(tables, work.left, progress=work.ticks("chips not seen"))
    return {"operators": fitted | {"left_out": work.left.listed()}, "unseen_chips": unseen}


PARTS: Mapping[str, Callable[[_Work], Row]] = {
    "training": _training,
    "steps": _steps,
    "deployments": _deployments,
    "runs": _runs,
    "operators": _operators,
}
"""What can be computed again by itself."""
ORDER = (
    "schema", "title", "date", "quick", "truth", "operators", "unseen_chips", "steps", "deployments", "runs",
    "published", "measured", "profiles",
)  # fmt: skip
"""Of what is stored."""


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
