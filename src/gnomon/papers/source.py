"""`paper.yaml` of a paper's folder, read and checked: its entry and, where its figures are expected, those."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection
from functools import cache

from gnomon.catalog import chip_spellings
from gnomon.catalog.book import squash
from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import Fields, shown
from gnomon.load.files import read_text
from gnomon.papers.base import RECALLED, STATUSES, TOPICS, Claim, Paper, Reproduction, seal
from gnomon.papers.claims import quantities
from gnomon.papers.clusters import mechanisms
from gnomon.papers.executed import results_of
from gnomon.papers.expected import one_of, read_reproduction, texts, words
from gnomon.papers.index import PaperFolder, folder_of, folders

FILE = "paper.yaml"
LARGEST = 1024**2
NOT_REPRODUCED = ("modelled", "listed")
"""Statuses that an entry may state; the others follow from a reproduction or a lab result."""
FEASIBILITIES = ("A", "B", "C", "D")
_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ARXIV = re.compile(r"[0-9]{4}\.[0-9]{4,5}")
_DOI = re.compile(r"10\.[0-9]{4,9}/\S+")
_LINK = re.compile(r"https?://[^\s<>\"]+")
REQUIRED_OF_US = "expected figures are sealed before ours are computed (CONTRIBUTING.md)"


def read_all() -> tuple[Paper, ...]:
    """All papers that ship, by category and slug."""
    found = [read(folder.slug)[0] for folder in folders()]
    return tuple(sorted(found, key=lambda paper: paper.place))


@cache
def read(slug: str) -> tuple[Paper, Reproduction | None]:
    """A paper that ships, from its folder."""
    return read_folder(folder_of(slug), chip_spellings())


def reproduction(slug: str) -> Reproduction:
    """Inputs and expected figures of a paper that ships."""
    found = read(slug)[1]
    if found is None:
        raise InputError("has no 'reproduction'", where=folder_of(slug).place(FILE))
    return found


def read_folder(folder: PaperFolder, spellings: Collection[str]) -> tuple[Paper, Reproduction | None]:
    """A paper from its folder; `spellings` are the names that chips may have."""
    from gnomon.load.files import parse_yaml

    where, path = folder.place(FILE), folder.file(FILE)
    if not _SLUG.fullmatch(folder.slug):
        raise InputError("the folder's name may only have lowercase letters, digits and '_'", where=where)
    if not path.exists():
        raise InputError("no such file", where=where, hint="A paper's folder has one.")
    entry = Fields(parse_yaml(read_text(path, LARGEST), where), where)
    claims = tuple(_claim(entry.item("claims", at)) for at in range(len(entry.list("claims"))))
    found = read_reproduction(entry.inner("reproduction"), len(claims)) if entry.has("reproduction") else None
    computed = folder.file("figures.py").exists()
    if computed and found is None:
        raise InputError("figures.py needs a 'reproduction'", where=where)
    if found is not None and not found.sealed and not folder.own:
        hint = f'Write `sealed: "{seal(found.expected)}"` there: {REQUIRED_OF_US}.'
        raise InputError("is missing", where=f"{where}, field reproduction.sealed", hint=hint)
    status, why = _status(entry, folder, found if computed else None)
    ids = entry.inner("ids")
    made = Paper(
        slug=folder.slug,
        title=text(entry, "title"),
        authors=words(entry, "authors"),
        arxiv=_matched(ids, "arxiv", _ARXIV, "an arXiv number such as 2104.04473"),
        doi=_matched(ids, "doi", _DOI, "a DOI such as 10.1145/3731599.3767706"),
        repository=_matched(entry, "repository", _LINK, "an address"),
        links=_links(entry),
        recalled=_recalled(entry),
        shelf=text(entry, "shelf"),
        date=_date(entry),
        mechanisms=_known(entry, "mechanisms", mechanisms(), "mechanism"),
        topics=_topics(entry),
        hardware=_hardware(entry, spellings),
        other_hardware=_other_hardware(entry, spellings),
        idea=text(entry, "idea"),
        technique=text(entry, "technique"),
        claims=claims,
        status=status,
        why=why,
        feasibility=one_of(entry, "feasibility", FEASIBILITIES),
    )
    ids.done()
    entry.done()
    return made, found


def text(given: Fields, name: str) -> str:
    return given.text(name).strip()


def _claim(given: Fields) -> Claim:
    where = given.spot("value")
    found = Claim(**texts(given, ("what", "value"), ("against", "setting")))
    quantities(found.value, where)
    return found


def _status(entry: Fields, folder: PaperFolder, computed: Reproduction | None) -> tuple[str, str]:
    """The status, and what is not reproduced and why: from the folder's other files, else from the entry."""
    ran = bool(results_of(folder))
    if computed is not None:
        for name in filter(entry.has, ("status", "why")):
            hint = "Leave it out: it follows from figures.py, and `missing` says what is left out and why."
            raise InputError("is not for an entry whose figures are computed", where=entry.spot(name), hint=hint)
        return "executed" if ran else computed.kind, computed.missing
    if entry.raw("status") in STATUSES and entry.raw("status") not in NOT_REPRODUCED:
        hint = f"A reproduction or a lab result gives it; write one of {', '.join(NOT_REPRODUCED)}."
        raise InputError(f"'{entry.raw('status')}' cannot be set in an entry", where=entry.spot("status"), hint=hint)
    status, why = one_of(entry, "status", NOT_REPRODUCED), text(entry, "why")
    return ("executed", "") if ran else (status, why)


def _matched(given: Fields, name: str, pattern: re.Pattern[str], what: str) -> str:
    found = text(given, name) if given.has(name) else ""
    if found and not pattern.fullmatch(found):
        raise InputError(f"{shown(found)} is not {what}", where=given.spot(name))
    return found


def _links(entry: Fields) -> tuple[str, ...]:
    found = words(entry, "links")
    for at, link in enumerate(found):
        if not _LINK.fullmatch(link):
            raise InputError(f"{shown(link)} is not an address", where=entry.spot(f"links[{at}]"))
    return found


def _recalled(entry: Fields) -> tuple[str, ...]:
    found = _known(entry, "recalled", RECALLED, "fact to recall")
    for name in found:
        given = entry.inner("ids") if name in ("arxiv", "doi") else entry
        if not given.has(name):
            raise InputError(f"there is no '{name}' that could be recalled", where=entry.spot("recalled"))
    return found


def _hardware(entry: Fields, spellings: Collection[str]) -> tuple[str, ...]:
    """Chips, spelled as the catalog spells them."""
    found = words(entry, "hardware")
    for at, name in enumerate(found):
        if name not in spellings:
            hint = "What the catalog does not have stands under 'other_hardware'."
            raise unknown_name("chip", name, spellings, where=entry.spot(f"hardware[{at}]"), hint=hint)
    return found


def _other_hardware(entry: Fields, spellings: Collection[str]) -> tuple[str, ...]:
    """What is no chip of the catalog, however it might be spelled."""
    found, known = words(entry, "other_hardware"), {squash(name): name for name in spellings}
    for at, name in enumerate(found):
        if squash(name) in known:
            hint = f"Write it under 'hardware' as {known[squash(name)]}."
            raise InputError(f"'{name}' is in the catalog", where=entry.spot(f"other_hardware[{at}]"), hint=hint)
    return found


def _topics(entry: Fields) -> tuple[str, ...]:
    found = _known(entry, "topics", TOPICS, "topic")
    if not found:
        raise InputError("has no topic", where=entry.spot("topics"), hint=f"Known: {', '.join(sorted(TOPICS))}.")
    return found


def _known(entry: Fields, name: str, known: Collection[str], noun: str) -> tuple[str, ...]:
    """A list of known words."""
    found = words(entry, name)
    for word in found:
        if word not in known:
            raise unknown_name(noun, word, known, where=entry.spot(name))
    return found


def _date(entry: Fields) -> str:
    """YAML makes a date of `2024-10-25`, a number of `2024` and a text of `2024-10`."""
    value = entry.raw("date", "")
    text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    try:
        known = not text or bool(
            _DATE.fullmatch(text) and datetime.date.fromisoformat(text + "-01-01"[len(text) - 4 :])
        )
    except ValueError:  # a month or a day that no calendar has
        known = False
    if not known:
        raise InputError(f"'{text}' is not a year, a month or a day such as 2024-10-25", where=entry.spot("date"))
    return text
