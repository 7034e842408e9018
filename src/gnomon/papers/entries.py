"""Papers from the index, one file that `python -m gnomon.papers.build` makes of all folders.

Lists compute nothing: the index also has the counts of figures within tolerance, which `make papers` updates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from gnomon.errors import InputError, unknown_name
from gnomon.papers.base import Claim, Figure, Paper

INDEX = Path(__file__).with_name("index.json")
LISTS = ("authors", "links", "recalled", "mechanisms", "topics", "hardware", "other_hardware")
ARXIV_NUMBER = re.compile(r"(?<![\d.])(\d{4}\.\d{4,5})(?:v\d+)?(?![\d.])")
NO_MATCH = "`gnomon papers search WORDS` searches titles and contents."


@cache
def rows() -> Mapping[str, Mapping[str, Any]]:
    """Rows of the index by slug: a paper, its clusters, whether it is reproduced, its counts, and its words."""
    return {row["paper"]["slug"]: row for row in json.loads(INDEX.read_text(encoding="utf-8"))}


@cache
def papers() -> tuple[Paper, ...]:
    """All papers that ship, by category and slug."""
    return tuple(_paper(row["paper"]) for row in rows().values())


@cache
def reproduced() -> tuple[str, ...]:
    """Slugs of reproduced papers that ship."""
    return tuple(sorted(slug for slug, row in rows().items() if row["reproduced"]))


def paper(slug: str) -> Paper:
    """One paper that ships by its slug."""
    return named(slug, papers())


def named(slug: str, known: Iterable[Paper]) -> Paper:
    """One of these papers by its slug, or by its arXiv number or address."""
    by_slug = {entry.slug: entry for entry in known}
    if number := ARXIV_NUMBER.search(slug):
        found = next((entry for entry in by_slug.values() if entry.arxiv == number[1]), None)
        if found is None:
            raise InputError(f"no paper of the index has the arXiv number {number[1]}", where="SLUG", hint=NO_MATCH)
        return found
    folded = slug.strip().casefold().replace("_", "-").replace(" ", "-")
    if folded not in by_slug:
        raise unknown_name("paper", slug, by_slug, hint=NO_MATCH)
    return by_slug[folded]


def categories() -> tuple[str, ...]:
    return tuple(sorted({entry.shelf for entry in papers()}))


def counted(figures: Iterable[Figure], entry_claims: int) -> dict[str, Any]:
    """The counts of figures as they come out, and of so many claims in the paper's entry."""
    found = list(figures)
    predicted = [one for one in found if one.kind == "predicted"]
    stands: dict[int, list[bool]] = {}
    for one in found:
        if one.claim:
            stands.setdefault(one.claim, []).append(one.within)
    return {
        "headline": {
            "checked": len(stands),
            "within": sum(map(all, stands.values())),
            "left_out": entry_claims - len(stands),
        },
        "median_error": median_error(predicted),
        "holds": {
            "figures": len(predicted),
            "within": sum(one.within for one in predicted),
            "identities": sum(one.kind == "identity" for one in found),
            "contradictions": sum(one.kind == "contradiction" for one in found),
        },
    }


def median_error(figures: Iterable[Figure]) -> float | None:
    """The median of their relative errors without sign; None without a figure, or where it is infinite."""
    errors = [abs(one.error) for one in figures]
    found = median(errors) if errors else math.inf
    return float(f"{found:.4g}") if math.isfinite(found) else None


def unchecked(entry_claims: int) -> dict[str, Any]:
    """Counts of a paper that is not reproduced, or whose counts are not stored."""
    return {
        "headline": {"checked": 0, "within": 0, "left_out": entry_claims},
        "median_error": None,
        "holds": None,
    }


def _paper(stored: Mapping[str, Any]) -> Paper:
    lists = {name: tuple(stored[name]) for name in LISTS}
    claims = tuple(Claim(**claim) for claim in stored["claims"])
    return Paper(**{**stored, **lists, "claims": claims})
