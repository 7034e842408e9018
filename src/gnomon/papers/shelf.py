"""The index: every entry of `shelves/`, checked, with the status that the files beside it give it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.papers import derivations
from gnomon.papers.base import STATUSES, Paper, Said
from gnomon.papers.executed import executed, outcome

SHELVES = Path(__file__).parent / "shelves"
_TOPICS = """
    attention batching carbon checkpoint cloud cluster code-generation communication compiler cost cpu diffusion edge
    energy fault-tolerance gemm graph heterogeneous image inference kernel kv-cache long-context lora measurement
    memory moe networking offload optimizer parallelism performance-model pipeline quantization rendering rl robotics
    scheduling science search serving simulation sparsity speculative speech survey training video vision vlm
"""
TOPICS = frozenset(_TOPICS.split())
ON_SHELF = ("modelled", "listed")
"""What an entry may say of itself; the other statuses follow from a derivation or a run."""
FEASIBILITIES = ("A", "B", "C", "D")
_FIELDS = frozenset(field.name for field in fields(Paper)) - {"shelf"}
_OPTIONAL = {"date"}
_SAID = {"what", "value", "against", "setting"}
_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, shelf by shelf, by slug."""
    entries = read(SHELVES)
    known = {entry.slug for entry in entries}
    files = {slug: f"papers/lab/{slug}.json" for slug in executed()}
    files |= {slug: derivations.place(slug) for slug in derivations.slugs()}
    for slug, where in files.items():
        if slug not in known:
            raise InputError(f"'{slug}' is on no shelf", where=where, hint="Add it to one.")
    return tuple(map(_with_status, entries))


def paper(slug: str) -> Paper:
    """One paper by its slug."""
    by_slug = {entry.slug: entry for entry in papers()}
    folded = slug.strip().casefold().replace("_", "-").replace(" ", "-")
    if folded not in by_slug:
        hint = "`gnomon papers search WORDS` looks for it by what it says."
        raise unknown_name("paper", slug, by_slug, hint=hint)
    return by_slug[folded]


def shelves() -> tuple[str, ...]:
    return tuple(sorted({entry.shelf for entry in papers()}))


def read(folder: Path) -> tuple[Paper, ...]:
    """The entries as they are written, of every file in a folder."""
    found: dict[str, Paper] = {}
    for file in sorted(folder.glob("*.yaml")):
        for position, entry in enumerate(_entries(file), 1):
            made = _paper(entry, file, position)
            if made.slug in found:
                other = found[made.slug].shelf
                raise InputError(f"'{made.slug}' is already on the shelf {other}.yaml", where=_place(file, made.slug))
            found[made.slug] = made
    return tuple(found.values())


def _with_status(entry: Paper) -> Paper:
    rederived = entry.slug in derivations.slugs()
    why = derivations.missing(entry.slug) if rederived else ""
    if entry.slug in executed():
        outcome(entry.slug)
        return replace(entry, status="executed", why=why)
    return replace(entry, status=derivations.kind(entry.slug), why=why) if rederived else entry


def _entries(file: Path) -> list[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        entries = yaml.load(file.read_bytes(), Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"is not YAML: {error.problem}", where=f"{file.name}{line}") from None
    except (yaml.YAMLError, ValueError) as error:  # a byte that is no text, an impossible date
        raise InputError(f"is not YAML: {error}", where=file.name) from None
    if not isinstance(entries, list):
        raise InputError("is not a list of papers", where=file.name)
    return entries


def _paper(entry: Any, file: Path, position: int) -> Paper:
    if not isinstance(entry, Mapping):
        raise InputError("is not a mapping of fields", where=f"{file.name} entry {position}")
    slug = entry.get("slug", "")
    where = _place(file, slug or f"entry {position}")
    _check_names(entry, _FIELDS, _FIELDS - _OPTIONAL, where)
    if not (isinstance(slug, str) and _SLUG.fullmatch(slug)):
        raise InputError(f"slug '{slug}' is not made of small letters, digits and dashes", where=where)
    texts = {name: _text(entry[name], name, where) for name in ("title", "idea", "technique", "why")}
    return Paper(
        slug=slug,
        shelf=file.stem,
        date=_date(entry.get("date", ""), where),
        topics=_topics(entry["topics"], where),
        hardware=_words(entry["hardware"], "hardware", where),
        claims=_claims(entry["claims"], where),
        status=_one_of(entry["status"], ON_SHELF, "status", where),
        feasibility=_one_of(entry["feasibility"], FEASIBILITIES, "feasibility", where),
        **texts,
    )


def _place(file: Path, slug: str) -> str:
    return f"{file.name}, {slug}"


def _check_names(entry: Mapping[str, Any], known: Iterable[str], needed: Iterable[str], where: str) -> None:
    for name in entry:
        if name not in known:
            raise unknown_name("field", str(name), known, where=where)
    for name in sorted(needed):
        if name not in entry:
            raise InputError(f"lacks the field '{name}'", where=where)


def _text(value: Any, name: str, where: str) -> str:
    if not (isinstance(value, str) and value.strip()):
        raise InputError(f"'{name}' is not a text", where=where)
    return value.strip()


def _date(value: Any, where: str) -> str:
    """YAML makes a date of `2024-10-25`, a number of `2024` and a text of `2024-10`."""
    text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    try:
        known = not text or bool(
            _DATE.fullmatch(text) and datetime.date.fromisoformat(text + "-01-01"[len(text) - 4 :])
        )
    except ValueError:  # a month or a day that no calendar has
        known = False
    if not known:
        raise InputError(f"date '{text}' is not a year, a month or a day such as 2024-10-25", where=where)
    return text


def _words(value: Any, name: str, where: str) -> tuple[str, ...]:
    if not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
        raise InputError(f"'{name}' is not a list of words", where=where)
    return tuple(value)


def _topics(value: Any, where: str) -> tuple[str, ...]:
    found = _words(value, "topics", where)
    if not found:
        raise InputError("has no topic", where=where, hint=f"Known: {', '.join(sorted(TOPICS))}.")
    for word in found:
        if word not in TOPICS:
            raise unknown_name("topic", word, TOPICS, where=where)
    return found


def _claims(value: Any, where: str) -> tuple[Said, ...]:
    if not isinstance(value, list):
        raise InputError("'claims' is not a list", where=where)
    found = []
    for position, claim in enumerate(value, 1):
        spot = f"{where}, claim {position}"
        if not isinstance(claim, Mapping):
            raise InputError("is not a mapping of fields", where=spot)
        _check_names(claim, _SAID, ("what", "value"), spot)
        found.append(Said(**{name: _text(text, name, spot) for name, text in claim.items()}))
    return tuple(found)


def _one_of(value: Any, known: tuple[str, ...], name: str, where: str) -> str:
    if value in STATUSES and value not in known:
        hint = "A derivation or a lab result gives it; write one of " + ", ".join(known) + "."
        raise InputError(f"{name} '{value}' is not for a shelf to say", where=where, hint=hint)
    if value not in known:
        raise unknown_name(name, str(value), known, where=where)
    return str(value)
