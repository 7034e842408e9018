"""Writes docs/papers.md: `python -m tests.golden.papers_page`. The test beside it keeps it true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import gnomon
from gnomon.papers.base import STATUSES, Paper
from gnomon.papers.shelf import papers
from gnomon.report.papers import amount, within
from gnomon.report.text import Notes

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"

INTRO = (
    "# Papers",
    "Papers on GPU systems, written by `make papers` from `src/gnomon/papers`. `gnomon papers` lists them, "
    "`gnomon papers search WORDS` finds them by what they say, `gnomon papers show SLUG` opens one, and "
    "`gnomon papers run SLUG` computes its figures again. [CONTRIBUTING.md](../CONTRIBUTING.md#add-a-paper) says how "
    "to add one.",
    "What a status means:",
)
MEANINGS = {
    "executed": "run on a GPU by `gnomon lab`, against the plain version",
    "predicted": "its figures come out of Gnomon's own model, no constant of which is set for a paper",
    "identity": "its figures follow by arithmetic from numbers that the paper gives itself: a check of the reading, "
    "not of the model",
    "modelled": "the mechanism is in Gnomon; the figures are not re-derived",
    "listed": "known; the mechanism is not in Gnomon, or not all of it",
}
FIGURES = (
    "Tolerances were written down before ours was computed. A figure outside its tolerance stays in the table, with "
    "the reason below it.\n"
)
NONE = "None yet.\n"


def page() -> str:
    entries = papers()
    counts = Counter(entry.status for entry in entries)
    statuses = [(status, f"{counts[status]}", MEANINGS[status]) for status in STATUSES]
    results = gnomon.papers.run().to_dict()
    parts = ["\n\n".join(INTRO) + "\n", _table(("status", "papers", "meaning"), statuses)]
    parts += ["## Re-derived\n", *_rederived(results), f"## All {len(entries)}\n"]
    for shelf, members in groupby(entries, key=lambda entry: entry.shelf):
        parts += [
            f"### {shelf}\n",
            _table(("paper", "", "date", "status", "why not, or what is left out"), map(_entry, members)),
        ]
    return "\n".join(parts)


def _rederived(answer: Mapping[str, Any]) -> list[str]:
    if not answer["results"]:
        return [NONE]
    head = ("paper", "status", "within tolerance", "headline", "claimed", "ours", "error")
    told = f"Of all, {within(answer['by_kind'])}.\n"
    return [FIGURES, told, _table(head, map(_headline, answer["results"])), *map(_one, answer["results"])]


def _headline(result: Mapping[str, Any]) -> Sequence[str]:
    claims = result["claims"]
    held = sum(claim["within"] for claim in claims)
    what, claimed, ours, error, *_ = _figure(claims[0])
    return f"`{result['slug']}`", result["status"], f"{held} of {len(claims)}", what, claimed, ours, error


def _one(result: Mapping[str, Any]) -> str:
    """The figures of a paper, why some miss, and what they rest on."""
    notes = Notes(longest=0)
    head = ("figure", "claimed", "ours", "error", "tolerance", "", "how", "note")
    rows = [(*_figure(claim), notes.short(claim["note"])) for claim in result["claims"]]
    taken = [f"{given['name']}: {given['value']} ({given['source']})" for given in result["inputs"]]
    named = [f"`{name}`" for name in result["techniques"]]
    lines = [f"### {result['slug']}\n", f"{result['title']}. {result['setting'].rstrip('.')}.\n", _table(head, rows)]
    for title, items in (
        ("Notes", [note.partition(" ")[2] for note in notes.lines()]),
        ("Assumed", result["assumptions"]),
        (f"Taken as it is; figures are from {result['source'].rstrip('.')}", taken),
        ("Left out", [result["missing"]] if result["missing"] else []),
        ("In plans", named),
    ):
        mark = "1." if title == "Notes" else "-"
        lines += [f"{title}:\n", *(f"{mark} {item}" for item in items), ""] if items else []
    return "\n".join(lines)


def _figure(claim: Mapping[str, Any]) -> Sequence[str]:
    error = "" if claim["error"] is None else f"{claim['error']:+.1%}"
    verdict = "within" if claim["within"] else "**outside**"
    sides = (amount(claim[side], claim["unit"]) for side in ("claimed", "ours"))
    return (claim["what"], *sides, error, f"{100 * claim['tolerance']:.3g}%", verdict, claim["kind"])


def _entry(entry: Paper) -> Sequence[str]:
    return f"`{entry.slug}`", entry.title, entry.date, entry.status, entry.why


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE.name}: {len(papers())} papers")
