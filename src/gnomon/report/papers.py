"""The text of `gnomon papers`, its searches, runs, citations and new folders."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gnomon.report.text import GAP, INDENT, Notes, Style, digits, headed, next_steps, plural, table, words
from gnomon.spec.answers import Result

WIDTH = 110
REPRODUCED = ("predicted", "identity")
STATUSES = {
    "executed": "run on a GPU",
    "predicted": "reproduced by Gnomon's cost model",
    "identity": "reproduced by arithmetic on its own numbers",
    "modelled": "the mechanism is in Gnomon, its figures are not reproduced",
    "listed": "known, and not modelled",
}
CLAIM_HEAD = ("figure", "claimed", "ours", "error", "tolerance", "", "how", "")
LEGEND = "n/m (k out): n of m checked claims of the paper within tolerance, k claims left out"

LARGE = 1e15
"""From here on a number is written with a power of ten."""


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    if payload["schema"] == "gnomon.papers.show/1":
        from gnomon.report.paper import lines

        return "\n".join(lines(payload, style))
    made = {"gnomon.papers.run/1": _run, "gnomon.papers.cite/1": _cited, "gnomon.papers.new/1": _begun}
    return "\n".join(made.get(payload["schema"], _list)(payload, style))


def _list(payload: Mapping[str, Any], style: Style) -> list[str]:
    papers = payload["papers"]
    if not papers:
        return [f"{INDENT}no match", "", *next_steps(words("gnomon", "papers"))]
    lines: list[str] = []
    if payload["query"]:
        lines += _rows(papers)
    else:
        for group, members in groupby(papers, key=lambda paper: str(paper["shelf"])):
            there = list(members)
            lines += [style.strong(f"{group} ({len(there)})"), *_rows(there)]
    counts = Counter(paper["status"] for paper in papers)
    told = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    reproduced = [paper["slug"] for paper in papers if paper["status"] in REPRODUCED and not paper["folder"]][:1]
    best = papers[:1] if payload["query"] else []
    shown = [paper["slug"] for paper in best] or reproduced or [papers[0]["slug"]]
    steps = [words("gnomon", "papers", "show", slug) for slug in shown]
    if not payload["query"]:
        steps.append(words("gnomon", "papers", "search", "offload", "optimizer"))
    steps += [words("gnomon", "papers", "run", slug) for slug in reproduced]
    summary = [f"{plural(len(papers), 'paper')}: {told}"]
    summary += [LEGEND] if any(paper["holds"] for paper in papers) else []
    return [*lines, "", *(style.faint(f"{INDENT}{text}") for text in summary), "", *next_steps(*steps)]


def _rows(papers: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [(paper["slug"], paper["date"][:4], in_short(paper), paper["title"]) for paper in papers]
    return [_cut(line) for line in table(rows, "<<<<")]


def in_short(paper: Mapping[str, Any]) -> str:
    """`predicted 2/3 (1 out)`: its status and, where it is computed, how many of its checked claims are within
    tolerance, and how many claims are left out."""
    if not paper["holds"]:
        return str(paper["status"])
    found = paper["headline"]
    left = f" ({found['left_out']} out)" if found["left_out"] else ""
    return f"{paper['status']} {found['within']}/{found['checked']}{left}"


def status_words(paper: Mapping[str, Any]) -> str:
    """`predicted: reproduced by Gnomon's cost model; 2 of 3 checked claims hold, 1 left out; median error 8.5%`."""
    found = paper["holds"]
    parts = [f"{paper['status']}: {STATUSES[paper['status']]}"]
    if found:
        parts += [headline_words(paper["headline"]), *error_words(paper["median_error"], found["figures"])]
        counts = beside_words(found["identities"], found["contradictions"])
        parts += [counts] if counts else []
    return "; ".join(parts)


def headline_words(found: Mapping[str, int]) -> str:
    """`2 of 3 checked claims hold, 1 left out`."""
    checked, within, left = found["checked"], found["within"], found["left_out"]
    if not checked:
        return f"no claim checked, {left} left out" if left else "it claims nothing that could be checked"
    told = f"{within} of {plural(checked, 'checked claim')} {'holds' if checked == 1 else 'hold'}"
    return f"{told}, {left} left out" if left else told


def error_words(error: float | None, figures: int) -> list[str]:
    """`median error 8.5% over 13 figures`."""
    return [f"median error {error:.1%} over {plural(figures, 'figure')}"] if figures and error is not None else []


def beside_words(identities: int, contradictions: int) -> str:
    """`5 identities and 1 contradiction`."""
    found = [plural(identities, "identity", "identities")] if identities else []
    return " and ".join([*found, *([plural(contradictions, "contradiction")] if contradictions else [])])


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1].rstrip() + "…"


def _run(payload: Mapping[str, Any], style: Style) -> list[str]:
    results = payload["results"]
    skipped = [f"{INDENT}{one['slug']} left out: {one['why']}; --allow-code runs it" for one in payload["skipped"]]
    if not results:
        return [f"{INDENT}no paper is reproduced yet", *skipped, "", *next_steps(words("gnomon", "papers"))]
    lines: list[str] = []
    for result in results:
        lines += [style.strong(f"{result['slug']}: {result['title']}"), *figure_rows(result, style)]
        lines += [*grounds(result), ""] if len(results) == 1 else [""]
    steps = next_steps(words("gnomon", "papers", "show", results[0]["slug"]))
    return [*lines, f"{INDENT}{within(payload)}", *skipped, "", *steps]


def within(payload: Mapping[str, Any]) -> str:
    """`20 of 25 checked claims hold, 9 left out; median error of a paper 12%; beside them 31 identities`, which prove
    less."""
    found, error = payload["by_kind"], payload["median_error"]
    told = [headline_words(payload["headline"])]
    several = len(payload["results"]) > 1
    told += [f"median error {'of a paper ' if several else ''}{error:.1%}"] if error is not None else []
    beside = beside_words(found["identity"]["figures"], found["contradiction"]["figures"])
    return "; ".join([*told, *([f"beside them {beside}"] if beside else [])])


def figure_rows(result: Mapping[str, Any], style: Style) -> list[str]:
    """The figures beside ours; a note that several figures share is shown once."""
    notes = Notes(longest=0)
    rows = [CLAIM_HEAD, *((*_claim(claim), notes.short(claim["note"])) for claim in result["claims"])]
    told = [line for note in notes.lines() for line in wrapped(note, INDENT * 2)]
    return [*headed(rows, "<>>>><<<", style), *told]


def grounds(result: Mapping[str, Any]) -> list[str]:
    """What the figures rest on."""
    given = [("setting", result["setting"]), ("source", result["source"])]
    given += [("sealed", f"{result['sealed']}, before ours were computed")] if result["sealed"] else []
    given += [("amended", f"{one['why']} ({one['seal']})") for one in result["amended"]]
    given += [("assumed", text) for text in result["assumptions"]]
    given += [("taken", f"{one['name']}: {one['value']} ({one['source']})") for one in result["inputs"]]
    given += [("techniques", ", ".join(result["techniques"]))] if result["techniques"] else []
    return ["", *facts(given)]


def _claim(claim: Mapping[str, Any]) -> tuple[str, ...]:
    error = "-" if claim["error"] is None else f"{claim['error']:+.1%}"
    return (
        claim["what"],
        amount(claim["claimed"], claim["unit"]),
        amount(claim["ours"], claim["unit"]),
        error,
        f"{100 * claim['tolerance']:.3g}%",
        "within" if claim["within"] else "outside",
        claim["kind"],
    )


def amount(value: float, unit: str) -> str:
    """`1.4x`, `20%`, `2.54 s`, `1.2e+26 FLOP`."""
    number = digits(value) if abs(value) < LARGE else f"{value:.3g}"
    return f"{number}{unit}" if unit in ("", "x", "%") else f"{number} {unit}"


def facts(given: Sequence[tuple[str, str]]) -> list[str]:
    """Names in a column and their texts beside it, wrapped; a name that stands above is not repeated."""
    wide = max(len(name) for name, _ in given)
    lines: list[str] = []
    before = ""
    for name, text in given:
        head = f"{INDENT}{'' if name == before else name:<{wide}}{GAP}"
        lines.append(textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))
        before = name
    return lines


def wrapped(text: str, indent: str = INDENT) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def _cited(payload: Mapping[str, Any], style: Style) -> list[str]:
    """The entry alone, with what is missing as comments that BibTeX skips."""
    lines = [payload["bibtex"].rstrip()]
    lines += [f"% not known: {', '.join(payload['unknown'])}"] if payload["unknown"] else []
    lines += [f"% written from memory: {', '.join(payload['recalled'])}"] if payload["recalled"] else []
    return lines


def _begun(payload: Mapping[str, Any], style: Style) -> list[str]:
    lines = [f"{INDENT}{name}" for name in payload["files"]]
    return [
        style.strong(f"{payload['slug']} begun"),
        *lines,
        "",
        *next_steps(words("gnomon", "papers", "show", payload["slug"])),
    ]
