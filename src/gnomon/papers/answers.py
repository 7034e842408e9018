"""Answers about papers: lists, one in full, reproduced figures, citations, and folders for papers of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from gnomon.catalog import find_chip
from gnomon.catalog.base import fold
from gnomon.errors import unknown_name
from gnomon.papers.base import FIGURE_KINDS, STATUSES, Paper
from gnomon.papers.book import PaperBook, paper_book
from gnomon.papers.ranking import ranked
from gnomon.papers.results import NewPaper, PaperCitation, PaperList, PaperShown, PapersRun, ReproducedPaper
from gnomon.spec.questions.known import NewPaperQuestion, PaperQuestion, PaperSearchQuestion, PapersQuestion

if TYPE_CHECKING:  # lists and searches need no engine, technique or experiment
    from gnomon.papers.reproduce import Progress

USUAL_LIMIT = 10


def listed(
    *,
    topic: str | None = None,
    status: str | None = None,
    shelf: str | None = None,
    cluster: str | None = None,
    hardware: str | None = None,
    since: int | None = None,
    folder: str | Path | None = None,
) -> PaperList:
    """All papers, or those of a topic, a status, a category (`shelf`), a cluster, hardware they used, or a year and
    later; with those of a folder of your own."""
    asked = PapersQuestion(
        topic=topic, status=status, category=shelf, cluster=cluster, hardware=hardware, since=since, folder=folder
    )
    given = dict(zip(_NARROW, (asked.topic, asked.status, asked.category, asked.cluster, asked.hardware, asked.since),
                     strict=True))  # fmt: skip
    filters = {name: value for name, value in given.items() if value is not None}
    book = paper_book(asked.folder)
    found = book.papers
    for name, value in filters.items():
        found = _NARROW[name](book, found, value)
    return PaperList(papers=tuple(map(book.row, found)), filters=filters)


def search(words: str, *, limit: int = USUAL_LIMIT, folder: str | Path | None = None) -> PaperList:
    """Papers that match a full-text query, an arXiv number or names of authors, the best match first."""
    asked = PaperSearchQuestion(words=words, limit=limit, folder=folder)
    book = paper_book(asked.folder)
    found = ranked(asked.words, book)[: asked.limit]
    return PaperList(papers=tuple(book.row(match) | {"score": round(score, 3)} for match, score in found), query=words)


def show(slug: str, *, folder: str | Path | None = None, allow_code: bool = False) -> PaperShown:
    """One paper, with its figures against ours where it is reproduced. Figures of a paper of your own are computed
    where its Python is allowed to run."""
    from gnomon.lab import EXPERIMENTS
    from gnomon.papers import reproduce
    from gnomon.papers.executed import results_of
    from gnomon.papers.nearest import closest, needs
    from gnomon.techniques import compared_by, for_paper

    asked = PaperQuestion(slug=slug, folder=folder, allow_code=allow_code)
    book = paper_book(asked.folder)
    entry = book.find(asked.slug or "")
    forbidden = entry.slug in book.own and not asked.allow_code
    computed = entry.slug in book.reproduced and not forbidden
    result = reproduce.run(entry.slug, book, allow_code=asked.allow_code) if computed else None
    row, known, own_folder = book.row(entry), for_paper(entry.slug), book.folder(entry.slug)
    counts = ("headline", "median_error", "holds")
    row |= {name: getattr(result, name) for name in counts} if result else book.unchecked(entry)
    return PaperShown(
        slug=entry.slug,
        title=entry.title,
        authors=entry.authors,
        ids=row["ids"],
        links=entry.pages,
        recalled=entry.recalled,
        status=entry.status,
        **{name: row[name] for name in counts},
        techniques=(known[0].name,) if known else (),
        compared_by=compared_by(known[0]) if known else "",
        experiments=(entry.slug,) if entry.slug in EXPERIMENTS else (),
        clusters=row["clusters"],
        needs=tuple(map(asdict, needs(entry))),
        closest=closest(entry, book) if not known else None,
        expected=() if result else _expected(book, entry),
        paper=row,
        result=result,
        lab=ran[-1] if (ran := results_of(own_folder)) else None,
        not_run=reproduce.NOT_RUN if entry.slug in book.reproduced and forbidden else "",
    )


def run(
    slug: str | None = None,
    *,
    progress: Progress | None = None,
    jobs: int = 1,
    folder: str | Path | None = None,
    allow_code: bool = False,
) -> PapersRun:
    """The reproduced figures of a paper; without a name, of every reproduced paper, in `jobs` processes. The Python of
    papers of your own runs where that is allowed."""
    from gnomon.papers import reproduce

    asked = PaperQuestion(slug=slug, jobs=jobs, folder=folder, allow_code=allow_code)
    book = paper_book(asked.folder)
    if asked.slug is None:
        results = reproduce.run_all(progress, asked.jobs, folder=asked.folder, allow_code=asked.allow_code)
    else:
        results = (reproduce.run(asked.slug, book, allow_code=asked.allow_code),)
    left = [name for name in book.reproduced if name in book.own] if asked.slug is None and not allow_code else []
    errors = [found.median_error for found in results if found.median_error is not None]
    return PapersRun(
        results=results,
        headline={name: sum(found.headline[name] for found in results) for name in ("checked", "within", "left_out")},
        median_error=median(errors) if errors else None,
        by_kind={kind: _counts(results, kind) for kind in FIGURE_KINDS},
        skipped=tuple({"slug": name, "why": reproduce.NOT_RUN} for name in left),
    )


def cite(slug: str, *, folder: str | Path | None = None) -> PaperCitation:
    """A paper as BibTeX, of what is known of it."""
    from gnomon.papers.citation import bibtex, unknown

    asked = PaperQuestion(slug=slug, folder=folder)
    entry = paper_book(asked.folder).find(asked.slug or "")
    return PaperCitation(slug=entry.slug, bibtex=bibtex(entry), unknown=unknown(entry), recalled=entry.recalled)


def new(slug: str, *, arxiv: str | None = None, out: str | Path | None = None) -> NewPaper:
    """Begin a paper of your own: a folder with an entry to fill in."""
    from gnomon.papers.begun import begin

    asked = NewPaperQuestion(slug=slug, arxiv=arxiv, out=out)
    return NewPaper(slug=asked.slug, files=begin(asked))


def _expected(book: PaperBook, entry: Paper) -> tuple[dict[str, Any], ...]:
    """The figures that are written down for a paper whose own are not computed."""
    given = book.given(entry.slug)
    return tuple(map(asdict, given.expected)) if given else ()


def _counts(results: Iterable[ReproducedPaper], kind: str) -> dict[str, int]:
    within = [bool(claim["within"]) for result in results for claim in result.claims if claim["kind"] == kind]
    return {"figures": len(within), "within": sum(within)}


def _by_topic(book: PaperBook, entries: Iterable[Paper], topic: str) -> tuple[Paper, ...]:
    known = {word for entry in book.papers for word in entry.topics}
    wanted = _known("topic", topic, known)
    return tuple(entry for entry in entries if wanted in entry.topics)


def _by_status(book: PaperBook, entries: Iterable[Paper], status: str) -> tuple[Paper, ...]:
    wanted = _known("status", status, STATUSES)
    return tuple(entry for entry in entries if entry.status == wanted)


def _by_category(book: PaperBook, entries: Iterable[Paper], name: str) -> tuple[Paper, ...]:
    wanted = _known("shelf", name, {entry.shelf for entry in book.papers})
    return tuple(entry for entry in entries if entry.shelf == wanted)


def _by_cluster(book: PaperBook, entries: Iterable[Paper], name: str) -> tuple[Paper, ...]:
    wanted = _known("cluster", name, {one for entry in book.papers for one in book.clusters(entry.slug)})
    return tuple(entry for entry in entries if wanted in book.clusters(entry.slug))


def _by_hardware(book: PaperBook, entries: Iterable[Paper], name: str) -> tuple[Paper, ...]:
    """Papers that used it, by name or part of it: H100-SXM-80GB finds those that name H100, and the reverse; any
    spelling of a chip that the catalog knows finds it."""
    wanted = [_parts(name), _parts(find_chip(name) or name)]
    known = sorted({used for entry in book.papers for used in entry.used})
    same = {used for used in known for parts in wanted if parts and (parts <= _parts(used) or _parts(used) <= parts)}
    if not same:
        raise unknown_name("hardware", name, known, where="--hardware")
    return tuple(entry for entry in entries if same & set(entry.used))


def _since(book: PaperBook, entries: Iterable[Paper], year: int) -> tuple[Paper, ...]:
    return tuple(entry for entry in entries if entry.date and int(entry.date[:4]) >= year)


def _known(what: str, name: str, known: Iterable[str]) -> str:
    names = {fold(word): word for word in known}
    if fold(name) not in names:
        raise unknown_name(what, name, names.values(), where=f"--{what}")
    return names[fold(name)]


def _parts(name: str) -> set[str]:
    return set(fold(name).split("-")) - {"", "nvidia", "amd", "intel", "google", "huawei", "of"}


_NARROW: dict[str, Callable[[PaperBook, tuple[Paper, ...], Any], tuple[Paper, ...]]] = {
    "topic": _by_topic,
    "status": _by_status,
    "shelf": _by_category,
    "cluster": _by_cluster,
    "hardware": _by_hardware,
    "since": _since,
}
