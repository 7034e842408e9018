"""The text of `gnomon papers`."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gnomon.report.lab import comparable, footnotes, prediction
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
FEASIBILITY = {
    "A": "clear from what it says",
    "B": "with assumptions",
    "C": "in part",
    "D": "out of reach",
}
CLAIM_HEAD = ("figure", "claimed", "ours", "error", "tolerance", "", "how", "")
TRIED_ON = ("--model", "llama-3.1-8b", "--on", "H100:8")


def render(answer: Result, style: Style) -> str:
    payload = answer.to_dict()
    if payload["schema"] == "gnomon.papers.show/1":
        return "\n".join(_one(payload, style))
    if payload["schema"] == "gnomon.papers.run/1":
        return "\n".join(_run(payload, style))
    return "\n".join(_list(payload, style))


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
    reproduced = [paper["slug"] for paper in papers if paper["status"] in REPRODUCED][:1]
    best = papers[:1] if payload["query"] else []
    shown = [paper["slug"] for paper in best] or reproduced or [papers[0]["slug"]]
    steps = [words("gnomon", "papers", "show", slug) for slug in shown]
    if not payload["query"]:
        steps.append(words("gnomon", "papers", "search", "offload", "optimizer"))
    steps += [words("gnomon", "papers", "run", slug) for slug in reproduced]
    summary = [f"{plural(len(papers), 'paper')}: {told}"]
    summary += ["n/m: n of m predicted figures within tolerance"] if any("/" in in_short(one) for one in papers) else []
    return [*lines, "", *(style.faint(f"{INDENT}{text}") for text in summary), "", *next_steps(*steps)]


def _rows(papers: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [(paper["slug"], paper["date"][:4], in_short(paper), paper["title"]) for paper in papers]
    return [_cut(line) for line in table(rows, "<<<<")]


def in_short(paper: Mapping[str, Any]) -> str:
    """`executed 25/105`: its status, and how many of its predicted figures are within tolerance."""
    found = paper["holds"]
    return f"{paper['status']} {found['within']}/{found['figures']}" if found and found["figures"] else paper["status"]


def status_words(paper: Mapping[str, Any]) -> str:
    """`executed: run on a GPU; 29 of 98 figures within tolerance; headline: checked, misses`."""
    found = paper["holds"]
    parts = [f"{paper['status']}: {STATUSES[paper['status']]}"]
    if found:
        if found["figures"]:
            parts.append(f"{found['within']} of {plural(found['figures'], 'figure')} within tolerance")
        counts = [plural(found["identities"], "identity", "identities")] if found["identities"] else []
        counts += [plural(found["contradictions"], "contradiction")] if found["contradictions"] else []
        parts += [", ".join(counts)] if counts else []
        parts.append(f"headline: {headline_words(paper['headline'])}")
    return "; ".join(parts)


def headline_words(found: Mapping[str, int]) -> str:
    """`checked, misses` of one claim; `3 of 4 claims checked, 2 hold` of several."""
    checked, within = found["checked"], found["within"]
    total = checked + found["left_out"]
    if not checked:
        return "not checked" if total else "no claim"
    if total == 1:
        return "checked, holds" if within else "checked, misses"
    return f"{checked} of {total} claims checked, {within} {'holds' if within == 1 else 'hold'}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1].rstrip() + "…"


def _one(payload: Mapping[str, Any], style: Style) -> list[str]:
    paper, result = payload["paper"], payload["result"]
    year = f" ({paper['date']})" if paper["date"] else ""
    facts = [("status", status_words(paper)), ("topics", ", ".join(paper["topics"]))]
    facts += [("hardware", ", ".join(paper["hardware"]))] if paper["hardware"] else []
    facts += [("in a plan", paper["technique"])]
    if result or payload["lab"]:
        facts += [("left out", paper["why"])] if paper["why"] else []
    else:
        facts += [("why not", paper["why"]), ("reproducible", FEASIBILITY[paper["feasibility"]])]
    lines = [style.strong(f"{paper['title']}{year}"), "", *_wrapped(paper["idea"]), "", *_facts(facts)]
    if paper["claims"]:
        lines += ["", style.strong("it claims"), *map(_claim_line, paper["claims"])]
    if result:
        lines += ["", style.strong("reproduced"), *_figures(result, style), *_grounds(result)]
    if payload["lab"]:
        lines += ["", *_lab(payload["lab"], style)]
    steps = next_steps(*_next(paper, result))
    return [*lines, *(["", *steps] if steps else [])]


def _next(paper: Mapping[str, Any], result: Mapping[str, Any] | None) -> list[str]:
    if not result:
        return []
    tried = [words("gnomon", "try", paper["slug"], *TRIED_ON)] if result["techniques"] else []
    return tried or [words("gnomon", "papers", "run", paper["slug"])]


def _claim_line(claim: Mapping[str, str]) -> str:
    against = f" against {claim['against']}" if claim["against"] else ""
    setting = f" ({claim['setting']})" if claim["setting"] else ""
    text = f"{claim['what']}: {claim['value']}{against}{setting}"
    return textwrap.fill(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT * 2)


def _lab(found: Mapping[str, Any], style: Style) -> list[str]:
    """What was run, and how many times faster it was than the plain version, sustained."""
    lines = [style.strong(f"run on {found['device']}, {found['date']}")]
    for row in found["compared"]:
        gain = f"{digits(row['gain'])}x the plain version's speed" if row["gain"] else "not known"
        burst = f" sustained, {digits(row['burst_gain'])}x in a burst" if row.get("burst_gain") else ""
        ours = f"; predicted {prediction(row)}" if prediction(row) else ""
        lines += _wrapped(f"{row['what']}: {gain}{burst}{ours}")
    notes = [*footnotes(found["compared"]), *found.get("notes", ()), comparable(found)]
    return [*lines, *(line for note in notes for line in _wrapped(note.strip(), INDENT * 2))]


def _run(payload: Mapping[str, Any], style: Style) -> list[str]:
    results = payload["results"]
    if not results:
        return [f"{INDENT}no paper is reproduced yet", "", *next_steps(words("gnomon", "papers"))]
    lines: list[str] = []
    for result in results:
        lines += [style.strong(f"{result['slug']}: {result['title']}"), *_figures(result, style)]
        lines += [*_grounds(result), ""] if len(results) == 1 else [""]
    steps = next_steps(words("gnomon", "papers", "show", results[0]["slug"]))
    return [*lines, f"{INDENT}{within(payload['by_kind'])}", "", *steps]


def within(by_kind: Mapping[str, Mapping[str, int]]) -> str:
    """`within tolerance: 61 of 86 predicted figures; beside them 5 identities`, which prove less."""
    counts = {kind: found["figures"] for kind, found in by_kind.items()}
    told = []
    if counts["predicted"]:
        figures = plural(counts["predicted"], "predicted figure")
        told.append(f"within tolerance: {by_kind['predicted']['within']} of {figures}")
    beside = [plural(counts["identity"], "identity", "identities")] if counts["identity"] else []
    beside += [plural(counts["contradiction"], "contradiction")] if counts["contradiction"] else []
    told += [f"beside them {' and '.join(beside)}" if told else " and ".join(beside)] if beside else []
    return "; ".join(told)


def _figures(result: Mapping[str, Any], style: Style) -> list[str]:
    """The figures beside ours; a note that several figures share is shown once."""
    notes = Notes(longest=0)
    rows = [CLAIM_HEAD, *((*_claim(claim), notes.short(claim["note"])) for claim in result["claims"])]
    told = [line for note in notes.lines() for line in _wrapped(note, INDENT * 2)]
    return [*headed(rows, "<>>>><<<", style), *told]


def _grounds(result: Mapping[str, Any]) -> list[str]:
    """What the figures rest on."""
    facts = [("setting", result["setting"]), ("source", result["source"])]
    facts += [("assumed", text) for text in result["assumptions"]]
    facts += [("taken", f"{given['name']}: {given['value']} ({given['source']})") for given in result["inputs"]]
    facts += [("techniques", ", ".join(result["techniques"]))] if result["techniques"] else []
    return ["", *_facts(facts)]


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
    """`1.4x`, `20%`, `2.54 s`."""
    return f"{digits(value)}{unit}" if unit in ("", "x", "%") else f"{digits(value)} {unit}"


def _facts(facts: Sequence[tuple[str, str]]) -> list[str]:
    """Names in a column and their texts beside it, wrapped; a name that stands above is not repeated."""
    wide = max(len(name) for name, _ in facts)
    lines: list[str] = []
    before = ""
    for name, text in facts:
        head = f"{INDENT}{'' if name == before else name:<{wide}}{GAP}"
        lines.append(textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)))
        before = name
    return lines


def _wrapped(text: str, indent: str = INDENT) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
