"""What holds of what was checked of a paper: its figures, and the claims of its entry that they stand for.

Lists compute nothing, so the counts of papers that ship are kept in `holds.json`, which `make papers` writes; a paper
opened by itself is counted as it is computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

STORED = Path(__file__).parent / "holds.json"


def counted(claims: Iterable[Mapping[str, Any]], entry_claims: int) -> dict[str, Any]:
    """Of figures as a re-derivation gives them, and of so many claims in the paper's entry."""
    rows = list(claims)
    predicted = [row for row in rows if row["kind"] == "predicted"]
    stands: dict[int, list[bool]] = {}
    for row in rows:
        if row["claim"]:
            stands.setdefault(int(row["claim"]), []).append(bool(row["within"]))
    return {
        "holds": {
            "figures": len(predicted),
            "within": sum(bool(row["within"]) for row in predicted),
            "identities": sum(row["kind"] == "identity" for row in rows),
            "contradictions": sum(row["kind"] == "contradiction" for row in rows),
        },
        "headline": {
            "checked": len(stands),
            "within": sum(all(found) for found in stands.values()),
            "left_out": entry_claims - len(stands),
        },
    }


def unchecked(entry_claims: int) -> dict[str, Any]:
    """Of a paper that is not re-derived, or whose counts nobody has stored."""
    return {"holds": None, "headline": {"checked": 0, "within": 0, "left_out": entry_claims}}


@cache
def stored() -> Mapping[str, dict[str, Any]]:
    """Counts of the papers that ship, by slug."""
    found: dict[str, dict[str, Any]] = json.loads(STORED.read_text(encoding="utf-8"))
    return found


def store(results: Sequence[Mapping[str, Any]]) -> str:
    """The text of the file for re-derived papers as they come out now."""
    found = {result["slug"]: {name: result[name] for name in ("holds", "headline")} for result in results}
    return json.dumps(found, indent=1) + "\n"
