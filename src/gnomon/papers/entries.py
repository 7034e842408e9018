"""The papers by their index: one file that `python -m gnomon.papers.build` makes of all folders.

Lists compute nothing, so the index has how many figures hold as well, which `make papers` counts; a paper opened by
itself is counted as it is computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.errors import unknown_name
from gnomon.papers.base import Claim, Figure, Paper

INDEX = Path(__file__).with_name("index.json")


@cache
def rows() -> Mapping[str, Mapping[str, Any]]:
    """The index as it is stored, by slug: a paper, whether it is re-derived, and what is known to hold."""
    return {row["paper"]["slug"]: row for row in json.loads(INDEX.read_text(encoding="utf-8"))}


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, shelf by shelf, by slug."""
    return tuple(_paper(row["paper"]) for row in rows().values())


@cache
def reproduced() -> tuple[str, ...]:
    """Papers that are computed again, by slug."""
    return tuple(sorted(slug for slug, row in rows().items() if row["rederived"]))


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


def known_to_hold(entry: Paper) -> dict[str, Any]:
    """Of a paper, the stored counts of figures and claims that hold."""
    counts: dict[str, Any] | None = rows()[entry.slug]["counts"]
    return counts or unchecked(len(entry.claims))


def counted(figures: Iterable[Figure], entry_claims: int) -> dict[str, Any]:
    """The counts of figures as they come out, and of so many claims in the paper's entry."""
    found = list(figures)
    predicted = [one for one in found if one.kind == "predicted"]
    stands: dict[int, list[bool]] = {}
    for one in found:
        if one.claim:
            stands.setdefault(one.claim, []).append(one.within)
    return {
        "holds": {
            "figures": len(predicted),
            "within": sum(one.within for one in predicted),
            "identities": sum(one.kind == "identity" for one in found),
            "contradictions": sum(one.kind == "contradiction" for one in found),
        },
        "headline": {
            "checked": len(stands),
            "within": sum(map(all, stands.values())),
            "left_out": entry_claims - len(stands),
        },
    }


def unchecked(entry_claims: int) -> dict[str, Any]:
    """Of a paper that is not re-derived, or whose counts nobody has stored."""
    return {"holds": None, "headline": {"checked": 0, "within": 0, "left_out": entry_claims}}


def _paper(stored: Mapping[str, Any]) -> Paper:
    lists = {name: tuple(stored[name]) for name in ("topics", "hardware")}
    claims = tuple(Claim(**claim) for claim in stored["claims"])
    return Paper(**{**stored, **lists, "claims": claims})
