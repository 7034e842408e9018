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
    sealed: str
    """The seal of the expected figures, written down before ours were computed."""
    amended: tuple[Mapping[str, str], ...]
    """What was changed of them since, and why."""
    claims: tuple[Mapping[str, Any], ...]
    """What, claimed, ours, unit, error, tolerance, within, kind, note and the claim of the entry it checks; the
    headline first. `error` is infinite, and null in JSON, where zero is claimed and ours is not zero."""
    headline: Mapping[str, int]
    """Claims of the paper's entry: checked by some figure, with all of them within tolerance, left out."""
    median_error: float | None
    """The median of the relative errors of its predicted figures; None without any."""
    holds: Mapping[str, int]
    """Predicted figures and how many are within tolerance, identities, contradictions."""


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
    authors: tuple[str, ...]
    """Empty where they are not known."""
    ids: Mapping[str, str]
    """`arxiv` and `doi`; empty where it has none, or none is known."""
    links: tuple[str, ...]
    """Where it can be read, and its code."""
    recalled: tuple[str, ...]
    """Which facts are written from memory."""
    status: str
    headline: Mapping[str, int]
    median_error: float | None
    holds: Mapping[str, int] | None
    techniques: tuple[str, ...]
    """What plans can use of it."""
    compared_by: str
    """The command that shows what they bring: `try`, or `simulate serve` where a step is the same with them; empty
    where there are none."""
    experiments: tuple[str, ...]
    """What `gnomon lab run` can run of it."""
    clusters: tuple[str, ...]
    needs: tuple[Mapping[str, str], ...]
    """The mechanisms that its figures need of Gnomon: name, cluster, what, state and note."""
    closest: Mapping[str, Any] | None
    """The technique that comes closest to a paper without one of its own; None where none does."""
    expected: tuple[Mapping[str, Any], ...]
    """Its expected figures, where they are written down and ours are not computed."""
    paper: Mapping[str, Any]
    result: ReproducedPaper | None
    """Its reproduced figures; None where it is not reproduced."""
    lab: Mapping[str, Any] | None
    """Its `gnomon lab` result on a GPU; None where it was not run."""
    not_run: str
    """Why figures that could be computed are not; empty where they are."""


@dataclass(frozen=True, kw_only=True)
class PapersRun(Result):
    SCHEMA = "papers.run"
    results: tuple[ReproducedPaper, ...]
    headline: Mapping[str, int]
    """Claims of all their entries: checked, within and left out."""
    median_error: float | None
    """The median over papers of their median errors, so that a long table counts as much as a short one."""
    by_kind: Mapping[str, Mapping[str, int]]
    """Of predicted figures, identities and contradictions, how many there are, and how many are within tolerance."""
    skipped: tuple[Mapping[str, str], ...] = ()
    """Papers that were not computed, and why."""


@dataclass(frozen=True, kw_only=True)
class PaperCitation(Result):
    SCHEMA = "papers.cite"
    slug: str
    bibtex: str
    unknown: tuple[str, ...]
    """Fields that are left out because nothing is known of them."""
    recalled: tuple[str, ...]
    """Fields that are written from memory."""


@dataclass(frozen=True, kw_only=True)
class NewPaper(Result):
    SCHEMA = "papers.new"
    slug: str
    files: tuple[str, ...]
    """What was written."""
