"""`paper.yaml` of a paper's folder, read and checked: its entry and, where it is reproduced, its reproduction."""

from __future__ import annotations

import datetime
import math
import re
from functools import cache
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import Fields, as_number, shown
from gnomon.load.files import parse_yaml
from gnomon.papers.base import (
    FIGURE_KINDS,
    KINDS,
    ROUNDING,
    STATUSES,
    TOPICS,
    USUAL_TOLERANCE,
    Claim,
    Expected,
    Input,
    Paper,
    Reproduction,
)
from gnomon.papers.executed import outcome
from gnomon.papers.index import file_of, folders, place

FILE = "paper.yaml"
NOT_REPRODUCED = ("modelled", "listed")
"""Statuses that an entry may state; the others follow from a reproduction or a lab result."""
FEASIBILITIES = ("A", "B", "C", "D")
_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def read_all() -> tuple[Paper, ...]:
    """All papers, by category and slug."""
    found = [read(folder.replace("_", "-"))[0] for folder in folders()]
    return tuple(sorted(found, key=lambda paper: f"{paper.shelf}/{paper.slug}"))


def reproduction(slug: str) -> Reproduction:
    """Inputs and expected figures of a reproduced paper."""
    found = read(slug)[1]
    if found is None:
        raise InputError("has no 'reproduction'", where=place(slug, FILE))
    return found


@cache
def read(slug: str) -> tuple[Paper, Reproduction | None]:
    """A paper from its folder."""
    where, path = place(slug, FILE), file_of(slug, FILE)
    if not _SLUG.fullmatch(slug):
        raise InputError("the folder's name may only have lowercase letters, digits and '_'", where=where)
    if not path.exists():
        raise InputError("no such file", where=where, hint="A paper's folder has one.")
    entry = Fields(parse_yaml(path.read_text(encoding="utf-8"), where), where)
    claims = tuple(
        Claim(**_texts(entry.item("claims", at), ("what", "value"), ("against", "setting")))
        for at in range(len(entry.list("claims")))
    )
    found = _reproduction(entry.inner("reproduction"), len(claims)) if entry.has("reproduction") else None
    if (found is not None) != file_of(slug, "figures.py").exists():
        raise InputError("'reproduction' and figures.py need each other", where=where)
    status, why = _status(entry, slug, found)
    made = Paper(
        slug=slug,
        title=_text(entry, "title"),
        shelf=_text(entry, "shelf"),
        date=_date(entry),
        topics=_topics(entry),
        hardware=_words(entry, "hardware"),
        idea=_text(entry, "idea"),
        technique=_text(entry, "technique"),
        claims=claims,
        status=status,
        why=why,
        feasibility=_one_of(entry, "feasibility", FEASIBILITIES),
    )
    entry.done()
    return made, found


def _status(entry: Fields, slug: str, found: Reproduction | None) -> tuple[str, str]:
    """The status, and what is not reproduced and why: from the folder's other files, else from the entry."""
    ran = file_of(slug, "lab.json").exists()
    if ran:
        outcome(slug)
    if found is not None:
        return "executed" if ran else found.kind, found.missing
    if entry.raw("status") in STATUSES and entry.raw("status") not in NOT_REPRODUCED:
        hint = f"A reproduction or a lab result gives it; write one of {', '.join(NOT_REPRODUCED)}."
        raise InputError(f"'{entry.raw('status')}' cannot be set in an entry", where=entry.spot("status"), hint=hint)
    status, why = _one_of(entry, "status", NOT_REPRODUCED), _text(entry, "why")
    return ("executed", "") if ran else (status, why)


def _reproduction(given: Fields, claims: int) -> Reproduction:
    notes = given.inner("notes")
    texts = {key: _text(notes, key) for key in notes.items()}
    expected = tuple(_expected(given.item("expected", at), texts, claims) for at in range(len(given.list("expected"))))
    _check_expected(expected, texts, given)
    inputs = [given.item("inputs", at) for at in range(len(given.list("inputs")))]
    found = Reproduction(
        kind=_one_of(given, "kind", KINDS),
        setting=_text(given, "setting"),
        source=_text(given, "source"),
        assumptions=_words(given, "assumptions"),
        inputs=tuple(Input(**_texts(one, ("name", "value", "source"))) for one in inputs),
        expected=expected,
        techniques=_words(given, "techniques"),
        missing=_text(given, "missing") if given.has("missing") else "",
    )
    given.done()
    return found


def _check_expected(expected: tuple[Expected, ...], notes: dict[str, str], given: Fields) -> None:
    if not expected:
        raise InputError("has no figure", where=given.spot("expected"))
    names = [one.what for one in expected]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"'{name}' is given twice", where=given.spot("expected"))
    for key, text in notes.items():
        if all(one.note != text for one in expected):
            raise InputError(f"no figure has the note '{key}'", where=given.spot("notes"))


def _expected(row: Fields, notes: dict[str, str], claims: int) -> Expected:
    found = Expected(
        what=_text(row, "what"),
        claimed=_number(row, "claimed"),
        unit=row.text("unit", ""),
        tolerance=_number(row, "tolerance", USUAL_TOLERANCE),
        kind=_one_of(row, "kind", FIGURE_KINDS, "predicted"),
        note=notes[_one_of(row, "note", tuple(notes))] if row.has("note") else "",
        claim=row.whole("claim", 0, most=claims),
    )
    row.done()
    if found.tolerance < 0:
        raise InputError(f"{found.tolerance} is below zero", where=row.spot("tolerance"))
    if found.kind == "identity" and found.tolerance > ROUNDING:
        hint = f"Use at most {ROUNDING:.0%}, the rounding of printed figures."
        raise InputError(f"an identity with tolerance {found.tolerance:.0%}", where=row.spot("tolerance"), hint=hint)
    return found


def _number(row: Fields, name: str, default: float | None = None) -> float:
    """A finite number; integers stay integers."""
    value: Any = as_number(row.raw(name) if default is None else row.raw(name, default))
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{shown(value)} is not a number", where=row.spot(name))
    return value


def _texts(given: Fields, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
    found = {name: _text(given, name) for name in (*needed, *filter(given.has, optional))}
    given.done()
    return found


def _text(given: Fields, name: str) -> str:
    return given.text(name).strip()


def _words(given: Fields, name: str) -> tuple[str, ...]:
    found = given.list(name)
    for at, word in enumerate(found):
        if not (isinstance(word, str) and word.strip()):
            raise InputError(f"{shown(word)} is not a text", where=given.spot(f"{name}[{at}]"))
    return tuple(found)


def _topics(entry: Fields) -> tuple[str, ...]:
    found = _words(entry, "topics")
    if not found:
        raise InputError("has no topic", where=entry.spot("topics"), hint=f"Known: {', '.join(sorted(TOPICS))}.")
    for word in found:
        if word not in TOPICS:
            raise unknown_name("topic", word, TOPICS, where=entry.spot("topics"))
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


def _one_of(given: Fields, name: str, known: tuple[str, ...], default: str = "") -> str:
    value = given.text(name, default) if default else given.text(name)
    if value not in known:
        raise unknown_name(name, value, known, where=given.spot(name))
    return value
