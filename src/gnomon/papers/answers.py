"""Answers about papers: lists, one in full, and reproduced figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, astuple
from typing import TYPE_CHECKING, Any

from gnomon.catalog.base import fold
from gnomon.errors import unknown_name
from gnomon.papers.base import FIGURE_KINDS, STATUSES, Paper
from gnomon.papers.entries import categories, known_to_hold, paper, papers, reproduced, unchecked
from gnomon.papers.ranking import ranked
from gnomon.papers.results import PaperList, PaperShown, PapersRun, ReproducedPaper
from gnomon.spec.questions.known import PaperQuestion, PaperSearchQuestion, PapersQuestion

if TYPE_CHECKING:  # lists and searches need no engine, technique or experiment
    from gnomon.papers.reproduce import Progress

USUAL_LIMIT = 10


def listed(
    *,
    topic: str | None = None,
    status: str | None = None,
    shelf: str | None = None,
    hardware: str | None = None,
    since: int | None = None,
) -> PaperList:
    """All papers, or those of a topic, a status, a category (`shelf`), hardware they used, or a year and later."""
    asked = PapersQuestion(topic=topic, status=status, category=shelf, hardware=hardware, since=since)
    given = zip(_NARROW, astuple(asked), strict=True)  # in the same order
    filters = {name: value for name, value in given if value is not None}
    found = papers()
    for name, value in filters.items():
        found = _NARROW[name](found, value)
    return PaperList(papers=tuple(map(_entry, found)), filters=filters)


def search(words: str, *, limit: int = USUAL_LIMIT) -> PaperList:
    """Papers that match a full-text query, the best match first."""
    asked = PaperSearchQuestion(words=words, limit=limit)
    found = ranked(asked.words)[: asked.limit]
    return PaperList(papers=tuple(_entry(match) | {"score": round(score, 3)} for match, score in found), query=words)


def show(slug: str) -> PaperShown:
    """One paper, with its figures against ours where it is reproduced."""
    from gnomon.lab import EXPERIMENTS
    from gnomon.papers import reproduce
    from gnomon.papers.executed import outcome
    from gnomon.techniques import for_paper

    entry = paper(PaperQuestion(slug=slug).slug or "")
    result = reproduce.run(entry.slug) if entry.slug in reproduced() else None
    lab = outcome(entry.slug) if entry.status == "executed" else None
    counts = {"holds": result.holds, "headline": result.headline} if result else unchecked(len(entry.claims))
    known = for_paper(entry.slug)
    return PaperShown(
        slug=entry.slug,
        title=entry.title,
        status=entry.status,
        **counts,
        techniques=(known[0].name,) if known else (),
        experiments=(entry.slug,) if entry.slug in EXPERIMENTS else (),
        paper=_entry(entry) | counts,
        result=result,
        lab=lab,
    )


def run(slug: str | None = None, *, progress: Progress | None = None, jobs: int = 1) -> PapersRun:
    """The reproduced figures of a paper; without a name, of every reproduced paper, in `jobs` processes."""
    from gnomon.papers import reproduce

    asked = PaperQuestion(slug=slug, jobs=jobs)
    results = reproduce.run_all(progress, asked.jobs) if asked.slug is None else (reproduce.run(asked.slug),)
    return PapersRun(results=results, by_kind={kind: _counts(results, kind) for kind in FIGURE_KINDS})


def _counts(results: Iterable[ReproducedPaper], kind: str) -> dict[str, int]:
    within = [bool(claim["within"]) for result in results for claim in result.claims if claim["kind"] == kind]
    return {"figures": len(within), "within": sum(within)}


def _entry(entry: Paper) -> dict[str, Any]:
    """An entry, with its stored counts."""
    return asdict(entry) | known_to_hold(entry)


def _by_topic(entries: Iterable[Paper], topic: str) -> tuple[Paper, ...]:
    known = {word for entry in papers() for word in entry.topics}
    wanted = _known("topic", topic, known)
    return tuple(entry for entry in entries if wanted in entry.topics)


def _by_status(entries: Iterable[Paper], status: str) -> tuple[Paper, ...]:
    wanted = _known("status", status, STATUSES)
    return tuple(entry for entry in entries if entry.status == wanted)


def _by_category(entries: Iterable[Paper], name: str) -> tuple[Paper, ...]:
    wanted = _known("shelf", name, categories())
    return tuple(entry for entry in entries if entry.shelf == wanted)


def _by_hardware(entries: Iterable[Paper], name: str) -> tuple[Paper, ...]:
    """Papers that used it, by name or part of it: H100-SXM-80GB finds those that name H100, and the reverse."""
    wanted = _parts(name)
    known = sorted({used for entry in papers() for used in entry.hardware})
    same = {used for used in known if wanted and (wanted <= _parts(used) or _parts(used) <= wanted)}
    if not same:
        raise unknown_name("hardware", name, known, where="--hardware")
    return tuple(entry for entry in entries if same & set(entry.hardware))


def _since(entries: Iterable[Paper], year: int) -> tuple[Paper, ...]:
    return tuple(entry for entry in entries if entry.date and int(entry.date[:4]) >= year)


def _known(what: str, name: str, known: Iterable[str]) -> str:
    names = {fold(word): word for word in known}
    if fold(name) not in names:
        raise unknown_name(what, name, names.values(), where=f"--{what}")
    return names[fold(name)]


def _parts(name: str) -> set[str]:
    return set(fold(name).split("-")) - {"", "nvidia", "amd", "intel", "google", "huawei"}


_NARROW: dict[str, Callable[[tuple[Paper, ...], Any], tuple[Paper, ...]]] = {
    "topic": _by_topic,
    "status": _by_status,
    "shelf": _by_category,
    "hardware": _by_hardware,
    "since": _since,
}
