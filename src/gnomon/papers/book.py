"""Papers that are known: those that ship, those of the user's folder and those of a folder that is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gnomon.errors import InputError
from gnomon.papers.base import Paper, Reproduction
from gnomon.papers.entries import named, papers, reproduced, rows, unchecked
from gnomon.papers.index import PaperFolder, folder_of
from gnomon.paths import home

FILE = "paper.yaml"
WHERE = "--papers"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPaper:
    """A paper of the user's own, from its folder."""

    paper: Paper
    folder: PaperFolder
    clusters: tuple[str, ...]
    reproduction: Reproduction | None
    """Its expected figures, where they are written down."""
    reproduced: bool


@dataclass(frozen=True)
class PaperBook:
    own: Mapping[str, OwnPaper] = field(default_factory=dict)
    broken: Mapping[str, InputError] = field(default_factory=dict)
    """Entries of Gnomon's own folder that cannot be read, by slug."""

    @cached_property
    def papers(self) -> tuple[Paper, ...]:
        """All papers, by category and slug."""
        if not self.own:
            return papers()
        known = (*papers(), *(one.paper for one in self.own.values()))
        return tuple(sorted(known, key=lambda paper: paper.place))

    @cached_property
    def reproduced(self) -> tuple[str, ...]:
        """Slugs of papers that have figures to compute."""
        return tuple(sorted((*reproduced(), *(slug for slug, one in self.own.items() if one.reproduced))))

    def find(self, slug: str) -> Paper:
        """One paper by its slug."""
        if error := self.broken.get(slug.strip().casefold().replace("_", "-")):
            raise error
        return named(slug, self.papers)

    def folder(self, slug: str) -> PaperFolder:
        return self.own[slug].folder if slug in self.own else folder_of(slug)

    def clusters(self, slug: str) -> tuple[str, ...]:
        return self.own[slug].clusters if slug in self.own else tuple(rows()[slug]["clusters"])

    def counts(self, paper: Paper) -> dict[str, Any]:
        """The stored counts of a paper's figures and claims within tolerance."""
        stored = None if paper.slug in self.own else rows()[paper.slug]["counts"]
        return self.unchecked(paper) | (stored or {})

    def unchecked(self, paper: Paper) -> dict[str, Any]:
        """Counts of a paper whose figures are not computed."""
        return unchecked(len(paper.claims))

    def given(self, slug: str) -> Reproduction | None:
        """Inputs and expected figures of a paper; None where none are written down."""
        from gnomon.papers.source import read

        return self.own[slug].reproduction if slug in self.own else read(slug)[1]

    def row(self, paper: Paper) -> dict[str, Any]:
        """A paper as answers have it, with its stored counts."""
        found = asdict(paper)
        ids = {name: found.pop(name) for name in ("arxiv", "doi")}
        more = {"ids": ids, "links": paper.pages, "clusters": self.clusters(paper.slug)}
        folder = str(self.own[paper.slug].folder.path) if paper.slug in self.own else ""
        return found | more | self.counts(paper) | {"folder": folder}


def paper_book(folder: str | Path | None = None) -> PaperBook:
    """All papers that ship, those of `papers` in Gnomon's own folder, and those of one more folder.

    A folder of papers has one folder for each, as `papers/index` has; the folder of a single paper will do. Their
    entries are read as data. One of Gnomon's own folder that cannot be read is left out, with a warning on stderr, so
    that an unfinished one is in nobody's way; of a folder that is named it is an error.
    """
    found: dict[str, OwnPaper] = {}
    broken: dict[str, InputError] = {}
    for one in _folders(home() / "papers"):
        try:
            found[one.slug] = _own(one, found)
        except InputError as error:
            print(f"warning: left out: {error}", file=sys.stderr)
            broken |= {} if one.slug in rows() else {one.slug: error}
    if folder is not None:
        given = Path(folder).expanduser()
        if not given.is_dir():
            raise InputError(f"'{folder}' is not a folder", where=WHERE, hint="Give a folder of papers, or of one.")
        if not list(_folders(given)):
            hint = f"A paper is a folder with a {FILE}: `gnomon papers new SLUG` begins one."
            raise InputError(f"'{folder}' has no papers", where=WHERE, hint=hint)
        for one in _folders(given):
            found[one.slug] = _own(one, found)
            broken.pop(one.slug, None)
    return PaperBook(found, broken)


def _folders(place: Path) -> Iterator[PaperFolder]:
    if not place.is_dir():
        return
    inner = [place] if (place / FILE).is_file() else sorted(one for one in place.iterdir() if (one / FILE).is_file())
    for path in inner:
        yield PaperFolder(slug=path.resolve().name.replace("_", "-"), path=path, own=True)


def _own(folder: PaperFolder, others: Mapping[str, OwnPaper]) -> OwnPaper:
    """A paper from its folder, whose name neither ships nor is among the others."""
    from gnomon.load.chips import chip_spellings
    from gnomon.papers.clusters import clusters_of
    from gnomon.papers.source import read_folder

    where = folder.place(FILE)
    if folder.slug in rows():
        hint = "Give the folder another name."
        raise InputError(f"a paper called '{folder.slug}' ships with Gnomon", where=where, hint=hint)
    if folder.slug in others:
        raise InputError(f"'{folder.slug}' is in {others[folder.slug].folder.path} too", where=where)
    paper, given = read_folder(folder, chip_spellings())
    return OwnPaper(
        paper=paper,
        folder=folder,
        clusters=clusters_of(paper),
        reproduction=given,
        reproduced=folder.file("figures.py").exists(),
    )
