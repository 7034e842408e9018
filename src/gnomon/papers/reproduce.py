"""Reproduced papers: `figures.py` of a paper's folder, loaded on demand, against the expected figures.

The Python of a user's own paper is run only where it is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from numbers import Real
from pathlib import Path
from typing import Any

from gnomon.errors import GnomonError, InputError
from gnomon.papers import index
from gnomon.papers.base import Expected, Figure
from gnomon.papers.book import PaperBook, paper_book
from gnomon.papers.entries import counted
from gnomon.papers.index import PaperFolder, folder_of
from gnomon.papers.results import ReproducedPaper
from gnomon.papers.source import reproduction
from gnomon.runner import ordered

Progress = Callable[[int, int, str], None]
FILE = "figures.py"
ALLOW = "--allow-code"


def run(slug: str, book: PaperBook | None = None, *, allow_code: bool = False) -> ReproducedPaper:
    """Reproduce one paper."""
    book = book or PaperBook()
    entry = book.find(slug)
    if entry.slug not in book.reproduced:
        why = entry.why or "It was run on a GPU only."
        hint = f"`gnomon papers --status predicted` and `--status identity` list reproduced ones. {why}"
        raise InputError(f"'{entry.slug}' is not reproduced", hint=hint)
    folder = book.folder(entry.slug)
    if folder.own and not allow_code:
        raise InputError(NOT_RUN, where=folder.place(FILE), hint=f"Add {ALLOW} to run it, if you trust it.")
    given = book.given(entry.slug)
    assert given is not None
    found = _figures(folder, given.expected)
    return ReproducedPaper(
        slug=entry.slug,
        title=entry.title,
        kind=given.kind,
        status=entry.status,
        setting=given.setting,
        source=given.source,
        assumptions=given.assumptions,
        inputs=tuple(map(asdict, given.inputs)),
        techniques=given.techniques,
        missing=given.missing,
        sealed=given.sealed,
        amended=tuple(map(asdict, given.amended)),
        claims=tuple(one.row for one in found),
        **counted(found, len(entry.claims)),
    )


NOT_RUN = "is Python of your own paper, and files from outside are not run"


def run_all(
    progress: Progress | None = None,
    jobs: int = 1,
    *,
    folder: str | Path | None = None,
    allow_code: bool = False,
) -> tuple[ReproducedPaper, ...]:
    """Reproduce all papers that have figures, by slug, in `jobs` processes; a user's own where code is allowed."""
    book = paper_book(folder)
    slugs = [slug for slug in book.reproduced if allow_code or slug not in book.own]
    work = partial(_run_one, folder=str(folder) if folder else None, own=frozenset(book.own))
    results, found = ordered(work, slugs, jobs=jobs), []
    for done, slug in enumerate(slugs):
        if progress is not None:
            progress(done, len(slugs), slug)
        found.append(next(results))
    return tuple(found)


def _run_one(slug: str, *, folder: str | None, own: frozenset[str]) -> ReproducedPaper:
    """One of all that run: what ships needs no look at the user's folders."""
    return run(slug, paper_book(folder), allow_code=True) if slug in own else run(slug)


def figures(slug: str) -> tuple[Figure, ...]:
    """The expected figures of a paper that ships, each with ours."""
    return _figures(folder_of(slug), reproduction(slug).expected)


def _figures(folder: PaperFolder, expected: Sequence[Expected]) -> tuple[Figure, ...]:
    where = folder.place(FILE)
    ours = dict(_checked(_ours(folder, where), where))
    unexpected = [name for name in ours if name not in {one.what for one in expected}]
    if unexpected:
        raise InputError(f"figure '{unexpected[0]}' is not among those expected", where=where)
    return tuple(_compared(one, ours, where) for one in expected)


def _ours(folder: PaperFolder, where: str) -> list[Any]:
    with _blamed(where, "cannot be loaded"):
        module = _loaded(folder) if folder.own else import_module(f"{index.__name__}.{folder.path.name}.figures")
    compute = getattr(module, "figures", None)
    if not callable(compute):
        raise InputError("has no function 'figures'", where=where)
    with _blamed(where, "its figures cannot be computed"):
        return list(compute())


def _loaded(folder: PaperFolder) -> Any:
    """The module of a file that stands in no package."""
    spec = spec_from_file_location(f"gnomon_own_paper_{folder.path.name}", folder.file(FILE))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _checked(pairs: list[Any], where: str) -> Iterator[tuple[str, float]]:
    """Names and numbers, checked; each name once."""
    seen = set()
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InputError(f"gives {pair!r}, which is not a figure's name and its value", where=where)
        name, value = pair
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise InputError(f"figure '{name}' is {value!r}, not a number", where=where)
        if name in seen:
            raise InputError(f"figure '{name}' is given twice", where=where)
        seen.add(name)
        yield name, value  # type: ignore[misc]


def _compared(expected: Expected, ours: dict[str, float], where: str) -> Figure:
    """An expected figure with ours; an identity must be within tolerance, a contradiction outside it."""
    if expected.what not in ours:
        raise InputError(f"gives no figure '{expected.what}', which is expected", where=where)
    found = Figure(**asdict(expected), ours=ours[expected.what])
    spot = f"{where}, figure '{found.what}'"
    if found.kind == "identity" and not found.within:
        hint = "Make it predicted, or a contradiction."
        raise InputError("an identity that is not reproduced", where=spot, hint=hint)
    if found.kind == "contradiction" and found.within:
        raise InputError("a contradiction that is reproduced", where=spot, hint="Make it an identity.")
    return found


@contextmanager
def _blamed(where: str, what: str) -> Iterator[None]:
    """Name the file in whatever a paper's figures.py raises."""
    try:
        yield
    except GnomonError as error:
        error.where = f"{where}, {error.where}" if error.where else where
        raise
    except Exception as error:
        line = f" line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"{what}: {type(error).__name__}: {text}", where=f"{where}{line}") from error
