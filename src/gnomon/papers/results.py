"""Results of the functions on papers. `to_dict()` is the JSON of the same command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.spec.answers import Result


@dataclass(frozen=True, kw_only=True)
class ReproducedPaper(Result):
    """A reproduced paper: each claimed figure with ours."""

    slug: str
    title: str
    kind: str
    status: str
    setting: str
    source: str
    assumptions: tuple[str, ...]
    inputs: tuple[Mapping[str, Any], ...]
    techniques: tuple[str, ...]
    missing: str
    """Which of the paper's claims no figure checks, and why."""
    claims: tuple[Mapping[str, Any], ...]
    """What, claimed, ours, unit, error, tolerance, within, kind, note and the claim of the entry it checks; the
    headline first. `error` is infinite, and null in JSON, where zero is claimed and ours is not zero."""
    holds: Mapping[str, int]
    """Predicted figures and how many are within tolerance, identities, contradictions."""
    headline: Mapping[str, int]
    """Claims of the paper's entry: checked by some figure, with all of them within tolerance, left out."""


@dataclass(frozen=True, kw_only=True)
class PaperList(Result):
    """Papers with all fields of their entries, by category and slug, or best match first."""

    SCHEMA = "papers"
    papers: tuple[Mapping[str, Any], ...]
    query: str = ""
    filters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PaperShown(Result):
    SCHEMA = "papers.show"
    slug: str
    title: str
    status: str
    holds: Mapping[str, int] | None
    headline: Mapping[str, int]
    techniques: tuple[str, ...]
    """What `gnomon try` and plans can use of it."""
    experiments: tuple[str, ...]
    """What `gnomon lab run` can run of it."""
    paper: Mapping[str, Any]
    result: ReproducedPaper | None
    """Its reproduced figures; None where it is not reproduced."""
    lab: Mapping[str, Any] | None
    """Its `gnomon lab` result on a GPU; None where it was not run."""


@dataclass(frozen=True, kw_only=True)
class PapersRun(Result):
    SCHEMA = "papers.run"
    results: tuple[ReproducedPaper, ...]
    by_kind: Mapping[str, Mapping[str, int]]
    """Of predicted figures, identities and contradictions, how many there are, and how many are within tolerance."""
