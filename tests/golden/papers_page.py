"""Writes docs/papers.md, the pages of docs/papers and the counts that lists show: `python -m tests.golden.papers_page`.
The test beside it keeps them true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from tests.golden.cluster_pages import FOLDER, overview, pages, table

import gnomon
from gnomon.papers.base import STATUSES
from gnomon.papers.build import build, stored_counts
from gnomon.papers.entries import papers, reproduced
from gnomon.report.papers import amount, beside_words, in_short, within
from gnomon.report.text import Notes

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
README = PAGE.parents[1] / "README.md"

INTRO = (
    "# Papers",
    "Papers on GPU systems, written by `make papers` from `src/gnomon/papers`. [papers-guide.md](papers-guide.md) says "
    "how to find one, run it and use its technique, [CONTRIBUTING.md](../CONTRIBUTING.md#add-a-paper) how to add one.",
    "What a status means:",
)
MEANINGS = {
    "executed": "run on a GPU by `gnomon lab`, against the plain version; whether its figures are computed too is "
    "shown with it",
    "predicted": "figures computed by Gnomon's own model, no constant of which is set for a paper",
    "identity": "its figures follow by arithmetic from numbers that the paper gives itself: a check of the reading, "
    "not of the model",
    "modelled": "the mechanism is in Gnomon; the figures are not computed",
    "listed": "known; the mechanism is not in Gnomon, or not all of it",
}
FIGURES = (
    "What counts are the claims of a paper's abstract, in three figures: how many are *checked*, where some figure of "
    "ours stands for one; how many of these are *within*, where all such figures are within their tolerance; and how "
    "many are *left out*. `2/3 (1 out)` says so in lists. Beside them is the median error of the predicted figures, "
    "without sign. Tables of figures are longer or shorter by paper and are not added up.\n\n"
    "Tolerances were written down, and sealed, before our figures were computed; an amendment is shown with its "
    "reason. A figure outside its tolerance stays in the table, with the reason below it.\n\n"
    "A figure is `predicted` where it depends on what Gnomon models: times, memory in use, schedules, hosts. It is an "
    "`identity` where it follows from the paper's own numbers by arithmetic and comes out, within 5% at most; a "
    "`contradiction` where it follows so and does not. A test bends the model and sees that the first kind moves and "
    'the others do not. In JSON `error` is null where zero is claimed ("does not fit") and ours is not zero.\n'
)
CLUSTERS = (
    "Papers that need the same of Gnomon are on one page, with the idea in words and a picture, what each claims, what "
    "Gnomon computes, what the lab measured, and when to use it.\n"
)
NONE = "None yet.\n"


def page(results: Mapping[str, Any]) -> str:
    entries = gnomon.papers().to_dict()["papers"]
    counts = Counter(entry["status"] for entry in entries)
    statuses = [(status, f"{counts[status]}", MEANINGS[status]) for status in STATUSES]
    parts = ["\n\n".join(INTRO) + "\n", table(("status", "papers", "meaning"), statuses)]
    parts += ["## By cluster\n", CLUSTERS, overview(entries), "## Computed\n", *_computed(results)]
    parts += [f"## All {len(entries)}\n"]
    for shelf, members in groupby(entries, key=lambda entry: str(entry["shelf"])):
        parts += [
            f"### {shelf}\n",
            table(("paper", "", "date", "status", "why not, or what is left out"), map(_entry, members)),
        ]
    return "\n".join(parts)


def counts(results: Mapping[str, Any]) -> dict[str, Any]:
    """What the index stores of papers as they come out."""
    names = ("headline", "median_error", "holds")
    return {one["slug"]: {name: one[name] for name in names} for one in results["results"]}


def readme_words() -> str:
    """What README.md says of papers, by what is stored in the index."""
    known, computed = papers(), reproduced()
    ran = [entry for entry in gnomon.papers(status="executed").to_dict()["papers"] if entry["slug"] in computed]
    each = [counts for counts in stored_counts().values() if counts]
    checked, held, left = (sum(one["headline"][name] for one in each) for name in ("checked", "within", "left_out"))
    error = median([one["median_error"] for one in each if one["median_error"] is not None])
    return (
        f"- **Papers**: of {len(known)} in the index, Gnomon computes the figures of {len(computed)}, {len(ran)} of "
        f"which it has also run on a GPU. Of the claims of their abstracts {checked} are checked, {held} of them "
        f"within tolerance, and {left} are left out; the median error of a paper is {error:.0%}. "
        "[docs/papers.md](docs/papers.md) has every figure, with the reason for each miss. The other "
        f"{len(known) - len(computed)} are entries to search: nothing is said of whether they hold."
    )


def _computed(answer: Mapping[str, Any]) -> list[str]:
    if not answer["results"]:
        return [NONE]
    head = ("paper", "status", "claims checked", "within", "left out", "median error", "beside them", "first figure",
            "claimed", "ours", "error")  # fmt: skip
    told = f"Of all, {within(answer)}.\n"
    return [FIGURES, told, table(head, map(_headline, answer["results"])), *map(_one, answer["results"])]


def _headline(result: Mapping[str, Any]) -> Sequence[str]:
    found, error = result["headline"], result["median_error"]
    beside = beside_words(result["holds"]["identities"], result["holds"]["contradictions"])
    what, claimed, ours, first, *_ = _figure(result["claims"][0])
    claims = (str(found[name]) for name in ("checked", "within", "left_out"))
    median = "" if error is None else f"{error:.1%}"
    return f"`{result['slug']}`", result["status"], *claims, median, beside, what, claimed, ours, first


def _one(result: Mapping[str, Any]) -> str:
    """The figures of a paper, why some miss, and what they rest on."""
    notes = Notes(longest=0)
    head = ("figure", "claimed", "ours", "error", "tolerance", "", "how", "note")
    rows = [(*_figure(claim), notes.short(claim["note"])) for claim in result["claims"]]
    taken = [f"{given['name']}: {given['value']} ({given['source']})" for given in result["inputs"]]
    named = [f"`{name}`" for name in result["techniques"]]
    lines = [f"### {result['slug']}\n", f"{result['title']}. {result['setting'].rstrip('.')}.\n", table(head, rows)]
    for title, items in (
        ("Notes", [note.partition(" ")[2] for note in notes.lines()]),
        ("Amended after they were sealed", [one["why"] for one in result["amended"]]),
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


if __name__ == "__main__":
    found = gnomon.papers.run().to_dict()
    build(counts(found))
    PAGE.write_text(page(found), encoding="utf-8")
    FOLDER.mkdir(exist_ok=True)
    written = pages(found)
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    for old in set(FOLDER.iterdir()) - {FOLDER / name for name in written}:
        old.unlink()
    lines = README.read_text(encoding="utf-8").split("\n")
    lines = [readme_words() if line.startswith("- **Papers**: ") else line for line in lines]
    README.write_text("\n".join(lines), encoding="utf-8")
    print(f"{PAGE.name}: {len(found['results'])} papers computed")
