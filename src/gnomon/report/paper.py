"""The text of `gnomon papers show`: one paper in full."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.lab import GAINS, comparable, footnotes, prediction
from gnomon.report.papers import REPRODUCED, WIDTH, amount, facts, figure_rows, grounds, status_words, wrapped
from gnomon.report.text import INDENT, Style, digits, next_steps, plural, table, words

FEASIBILITY = {
    "A": "clear from what it says",
    "B": "with assumptions",
    "C": "in part",
    "D": "out of reach",
}
STATES = {"built": "built", "partly": "in part", "missing": "not built"}
MOST_AUTHORS = 12
TRIED_ON = "H100:8"
LOAD = ("--rate", "20", "--input", "1000", "--output", "200")
NOT_KNOWN = "not known"


def lines(payload: Mapping[str, Any], style: Style) -> list[str]:
    paper, result = payload["paper"], payload["result"]
    year = f" ({paper['date']}{', recalled' * ('date' in paper['recalled'])})" if paper["date"] else ""
    found = [style.strong(f"{paper['title']}{year}"), "", *wrapped(paper["idea"]), "", *facts(_about(payload))]
    if paper["claims"]:
        found += ["", style.strong("it claims"), *map(_claim_line, paper["claims"])]
    if result:
        found += ["", style.strong("reproduced"), *figure_rows(result, style), *grounds(result)]
    elif payload["expected"]:
        found += ["", *_expected(payload, style)]
    if payload["lab"]:
        found += ["", *_lab(payload["lab"], style)]
    steps = next_steps(*_next(payload))
    return [*found, *(["", *steps] if steps else [])]


def _about(payload: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Its facts, and what it needs of Gnomon."""
    paper, done = payload["paper"], bool(payload["result"] or payload["lab"])
    found = [("authors", _authors(paper)), ("links", _links(payload)), ("status", status_words(paper))]
    found += [("topics", ", ".join(paper["topics"]))]
    used = [*paper["hardware"], *paper["other_hardware"]]
    found += [("hardware", ", ".join(used))] if used else []
    found += [("in a plan", paper["technique"])]
    if done:
        found += [("left out", paper["why"])] if paper["why"] else []
    else:
        found += [("why not", paper["why"]), ("reproducible", FEASIBILITY[paper["feasibility"]])]
    found += [] if done else [("needs", _need(one)) for one in payload["needs"]]
    if not done and payload["techniques"]:
        found += [("techniques", ", ".join(payload["techniques"]))]
    elif not done and payload["needs"]:
        found += [("closest", _closest(payload["closest"]))]
    found += [("cluster", ", ".join(payload["clusters"]))] if payload["clusters"] else []
    return [*found, *([("not run", payload["not_run"])] if payload["not_run"] else [])]


def _authors(paper: Mapping[str, Any]) -> str:
    people = paper["authors"]
    if not people:
        return NOT_KNOWN
    more = f" and {len(people) - MOST_AUTHORS} more" if len(people) > MOST_AUTHORS else ""
    return f"{', '.join(people[:MOST_AUTHORS])}{more}{_mark(paper, 'authors')}"


def _links(payload: Mapping[str, Any]) -> str:
    if not payload["links"]:
        return NOT_KNOWN
    code = "" if payload["paper"]["repository"] else "; no repository known"
    recalled = ", ".join(name for name in ("arxiv", "doi", "repository") if name in payload["recalled"])
    return f"{', '.join(payload['links'])}{code}{f' ({recalled} recalled)' if recalled else ''}"


def _mark(paper: Mapping[str, Any], name: str) -> str:
    return " (recalled)" if name in paper["recalled"] else ""


def _need(one: Mapping[str, str]) -> str:
    """`streamed-weights, in part: weights of layers streamed …. vLLM's weights in host memory are priced …`."""
    return f"{one['name']}, {STATES[one['state']]}: {one['what']}. {one['note']}"


def _closest(found: Mapping[str, Any] | None) -> str:
    if not found:
        return "no technique comes close"
    return f"{found['technique']} (of {', '.join(found['papers'])}): {found['what']}"


def _next(payload: Mapping[str, Any]) -> list[str]:
    paper, result, near = payload["paper"], payload["result"], payload["closest"]
    names = result["techniques"] if result else payload["techniques"]
    if names and payload["compared_by"]:
        return [_compared(payload["compared_by"], paper["slug"], names, paper)]
    if result:
        own = ["--allow-code"] if paper["folder"] else []
        return [words("gnomon", "papers", "run", paper["slug"], *own)]
    if near and paper["status"] not in REPRODUCED:
        return [_compared(near["compared_by"], near["technique"], [near["technique"]], paper)]
    return []


def _compared(command: str, name: str, techniques: Sequence[str], paper: Mapping[str, Any]) -> str:
    """The command that shows what a paper's techniques bring: a comparison by `name`, or a load with them."""
    model = "mixtral-8x7b" if "moe" in paper["topics"] else "llama-3.1-8b"
    if command == "try":
        return words("gnomon", command, name, "--model", model, "--on", TRIED_ON)
    used = (part for one in techniques for part in ("--with", one))
    return words("gnomon", *command.split(), model, "--on", TRIED_ON, *LOAD, *used)


def _claim_line(claim: Mapping[str, str]) -> str:
    against = f" against {claim['against']}" if claim["against"] else ""
    setting = f" ({claim['setting']})" if claim["setting"] else ""
    text = f"{claim['what']}: {claim['value']}{against}{setting}"
    return textwrap.fill(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT * 2)


def _expected(payload: Mapping[str, Any], style: Style) -> list[str]:
    """Figures that are written down and not computed."""
    rows = [
        (one["what"], amount(one["claimed"], one["unit"]), f"{100 * one['tolerance']:.3g}%")
        for one in payload["expected"]
    ]
    head = f"expected, not computed ({plural(len(rows), 'figure')})"
    return [style.strong(head), *table(rows, "<>>")]


def _lab(found: Mapping[str, Any], style: Style) -> list[str]:
    """What was run, and how many times faster it was than the plain version, sustained."""
    told = [style.strong(f"run on {found['device']}, {found['date']}")]
    for row in found["compared"]:
        gain = f"{digits(row['gain'])}x {GAINS[row.get('unit', 'seconds')]}" if row["gain"] else "not known"
        burst = f" sustained, {digits(row['burst_gain'])}x in a burst" if row.get("burst_gain") else ""
        ours = f"; predicted {prediction(row)}" if prediction(row) else ""
        told += wrapped(f"{row['what']}: {gain}{burst}{ours}")
    notes = [*footnotes(found["compared"]), *found.get("notes", ()), comparable(found)]
    return [*told, *(line for note in notes for line in wrapped(note.strip(), INDENT * 2))]
