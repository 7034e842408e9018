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
from gnomon.accuracy.operators import gathered, operators
from gnomon.accuracy.published import training_steps
from gnomon.accuracy.runs import runs
from gnomon.accuracy.scores import rounded
from gnomon.accuracy.steps import steps
from gnomon.accuracy.unseen import unseen_chips
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
    fresh: bool = False,
    quick: bool = False,
    chip: str | None = None,
    framework: str | None = None,
    family: str | None = None,
    dtype: str | None = None,
    jobs: int = 1,
    progress: Tell | None = None,
) -> Accuracy:
    """What is stored, or with `fresh` (needs the published tables, `GNOMON_TRUTH`) all of it again.

    `quick` compares fewer tables, deployments and runs; `jobs` processes compare and fit. The others keep what concerns
    one chip, framework, operator family or number format.
    """
    if chip is not None:
        find_chip(chip)
    found = computed(quick=quick, jobs=jobs, progress=progress) if fresh or quick else stored.load()
    given = {"chip": chip, "framework": framework, "family": family, "dtype": dtype}
    kept = narrowed(found, Wanted(**given))
    kept |= {"coverage": rounded(coverage(kept))}
    names = {one.name for one in fields(Accuracy)}
    return Accuracy(
        narrowed_to={name: word for name, word in given.items() if word is not None},
        **{name: _frozen(value) for name, value in kept.items() if name in names},
    )


def computed(
    *, quick: bool = False, measurements: Path = CHECKOUT, jobs: int = 1, progress: Tell | None = None
) -> dict[str, Any]:
    """Everything again, as it is stored."""
    folder, tell = truth.required(), progress or (lambda done, total, text: None)

    def ticks(text: str) -> Callable[[int, int], None]:
        return lambda done, total: tell(done, total, text)

    tell(0, None, "reading tables")
    truth.check(folder)
    tables, left = gathered(folder, measurements)
    tell(0, None, "training steps")
    training = training_steps(measurements)
    tell(0, None, "steps")
    measured = steps(measurements)
    loads = deployments(folder, measurements, quick=quick, jobs=jobs, progress=ticks("deployments"))
    trained = runs(folder, quick=quick, jobs=jobs, progress=ticks("training runs"))
    tables = tables[::QUICK_TABLES] if quick else tables
    fitted = operators(tables, left, jobs=jobs, progress=ticks("operators"))
    unseen = unseen_chips(tables, left, progress=ticks("chips not seen"))
    found = {
        "schema": stored.SCHEMA,
        "title": TITLE,
        "date": time.strftime("%Y-%m-%d"),
        "quick": quick,
        "truth": [{"file": path.name, "sha256": truth.checksum(path)} for path in truth.files(folder)],
        "operators": fitted | {"left_out": left.listed()},
        "unseen_chips": unseen,
        "steps": measured,
        "deployments": loads,
        "runs": trained,
        **training,
    }
    return dict(rounded(found | {"coverage": coverage(found)}))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
