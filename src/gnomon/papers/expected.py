"""The `reproduction` of a `paper.yaml`: inputs and expected figures, sealed before ours are computed."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.load.fields import Fields, as_number, shown
from gnomon.papers.base import (
    FIGURE_KINDS,
    KINDS,
    ROUNDING,
    USUAL_TOLERANCE,
    Amendment,
    Expected,
    Input,
    Reproduction,
    seal,
)
from gnomon.papers.claims import UNITS, unit_of


def read_reproduction(given: Fields, claims: int) -> Reproduction:
    """Inputs and expected figures of a paper with so many claims."""
    notes = given.inner("notes")
    told = {key: notes.text(key).strip() for key in notes.items()}
    expected = tuple(_expected(given.item("expected", at), told, claims) for at in range(len(given.list("expected"))))
    _check_expected(expected, told, given)
    inputs = [given.item("inputs", at) for at in range(len(given.list("inputs")))]
    amended = [given.item("amended", at) for at in range(len(given.list("amended")))]
    found = Reproduction(
        kind=one_of(given, "kind", KINDS),
        setting=given.text("setting").strip(),
        source=given.text("source").strip(),
        assumptions=words(given, "assumptions"),
        inputs=tuple(Input(**texts(one, ("name", "value", "source"))) for one in inputs),
        expected=expected,
        techniques=words(given, "techniques"),
        missing=given.text("missing").strip() if given.has("missing") else "",
        sealed=given.text("sealed").strip() if given.raw("sealed", "") else "",
        amended=tuple(Amendment(**texts(one, ("seal", "why"))) for one in amended),
    )
    _check_seal(found, given)
    given.done()
    return found


def _check_seal(found: Reproduction, given: Fields) -> None:
    """Refuse expected figures that are not those of the last seal."""
    last, now = (found.amended[-1].seal if found.amended else found.sealed), seal(found.expected)
    if not found.sealed and found.amended:
        raise InputError("is given without 'sealed'", where=given.spot("amended"))
    if last and last != now:
        hint = f'Put them back, or add `{{seal: "{now}", why: …}}` to `amended` and say why they had to change.'
        raise InputError(f"the seal is {last}, that of these figures is {now}", where=given.spot("expected"), hint=hint)


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
        what=row.text("what").strip(),
        claimed=_number(row, "claimed"),
        unit=row.text("unit", ""),
        tolerance=_number(row, "tolerance", USUAL_TOLERANCE),
        kind=one_of(row, "kind", FIGURE_KINDS, "predicted"),
        note=notes[one_of(row, "note", tuple(notes))] if row.has("note") else "",
        claim=row.whole("claim", 0, most=claims),
    )
    row.done()
    if unit_of(found.unit) is None:
        raise unknown_name("unit", found.unit, UNITS, where=row.spot("unit"))
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


def texts(given: Fields, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, str]:
    """The texts of a mapping that has nothing else."""
    found = {name: given.text(name).strip() for name in (*needed, *filter(given.has, optional))}
    given.done()
    return found


def words(given: Fields, name: str) -> tuple[str, ...]:
    """A list of texts, empty where it is left out."""
    found = given.list(name)
    for at, word in enumerate(found):
        if not (isinstance(word, str) and word.strip()):
            raise InputError(f"{shown(word)} is not a text", where=given.spot(f"{name}[{at}]"))
    return tuple(found)


def one_of(given: Fields, name: str, known: Collection[str], default: str = "") -> str:
    value = given.text(name, default) if default else given.text(name)
    if value not in known:
        raise unknown_name(name, value, known, where=given.spot(name))
    return value
