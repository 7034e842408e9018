"""Writes docs/papers.md and the counts that lists show: `python -m tests.golden.papers_page`. The test beside it keeps
both true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import gnomon
from gnomon.papers.base import STATUSES
from gnomon.papers.build import build
from gnomon.report.papers import amount, headline_words, in_short, within
from gnomon.report.text import Notes, plural

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"

INTRO = (
    "# Papers",
    "Papers on GPU systems, written by `make papers` from `src/gnomon/papers`. [papers-guide.md](papers-guide.md) says "
    "how to find one, run it and use its technique, [CONTRIBUTING.md](../CONTRIBUTING.md#add-a-paper) how to add one.",
    "What a status means:",
)
MEANINGS = {
    "executed": "run on a GPU by `gnomon lab`, against the plain version; whether its figures are computed too, and "
    "how many are within tolerance, is shown with it",
    "predicted": "figures computed by Gnomon's own model, no constant of which is set for a paper; how many are within "
    "tolerance is shown with it",
    "identity": "its figures follow by arithmetic from numbers that the paper gives itself: a check of the reading, "
    "not of the model",
    "modelled": "the mechanism is in Gnomon; the figures are not computed",
    "listed": "known; the mechanism is not in Gnomon, or not all of it",
}
FIGURES = (
    "Tolerances were written down before our figures were computed. A figure outside its tolerance stays in the table, "
    "with the reason below it.\n\n"
    "A figure is `predicted` where it depends on what Gnomon models: times, memory in use, schedules, hosts. It is an "
    "`identity` where it follows from the paper's own numbers by arithmetic and comes out, within 5% at most; a "
    "`contradiction` where it follows so and does not. A test bends the model and sees that the first kind moves and "
    "the others do not. Only predicted figures count as within tolerance or not. Claims of the entry are those of the "
    "abstract: checked where some figure stands for one, and confirmed where all of those are within "
    "tolerance. In JSON `error` is null "
    'where zero is claimed ("does not fit") and ours is not zero.\n'
)
NONE = "None yet.\n"


def page(results: Mapping[str, Any]) -> str:
    entries = gnomon.papers().to_dict()["papers"]
    counts = Counter(entry["status"] for entry in entries)
    statuses = [(status, f"{counts[status]}", MEANINGS[status]) for status in STATUSES]
    parts = ["\n\n".join(INTRO) + "\n", _table(("status", "papers", "meaning"), statuses)]
    parts += ["## Computed\n", *_rederived(results), f"## All {len(entries)}\n"]
    for shelf, members in groupby(entries, key=lambda entry: str(entry["shelf"])):
        parts += [
            f"### {shelf}\n",
            _table(("paper", "", "date", "status", "why not, or what is left out"), map(_entry, members)),
        ]
    return "\n".join(parts)


def counts(results: Mapping[str, Any]) -> dict[str, Any]:
    """What the index stores of papers as they come out."""
    return {one["slug"]: {name: one[name] for name in ("holds", "headline")} for one in results["results"]}


def _rederived(answer: Mapping[str, Any]) -> list[str]:
    if not answer["results"]:
        return [NONE]
    head = ("paper", "status", "within tolerance", "beside them", "claims of the entry", "first figure", "claimed",
            "ours", "error")  # fmt: skip
    told = f"Of all, {within(answer['by_kind'])}.\n"
    return [FIGURES, told, _table(head, map(_headline, answer["results"])), *map(_one, answer["results"])]


def _headline(result: Mapping[str, Any]) -> Sequence[str]:
    found = result["holds"]
    nouns = {"identities": ("identity", "identities"), "contradictions": ("contradiction",)}
    beside = [plural(found[name], *words) for name, words in nouns.items() if found[name]]
    held = f"{found['within']} of {found['figures']}" if found["figures"] else ""
    what, claimed, ours, error, *_ = _figure(result["claims"][0])
    claims = headline_words(result["headline"])
    return f"`{result['slug']}`", result["status"], held, ", ".join(beside), claims, what, claimed, ours, error


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


def _entry(entry: Mapping[str, Any]) -> Sequence[str]:
    return f"`{entry['slug']}`", entry["title"], entry["date"], in_short(entry), entry["why"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    found = gnomon.papers.run().to_dict()
    build(counts(found))
    PAGE.write_text(page(found), encoding="utf-8")
    print(f"{PAGE.name}: {len(found['results'])} papers computed")
