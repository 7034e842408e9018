"""The pages of docs/papers, a page and a picture for each cluster, written by `python -m tests.golden.papers_page`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.golden.pictures import picture

import gnomon
from gnomon.papers.base import PaperCluster
from gnomon.papers.clusters import clusters
from gnomon.papers.executed import executed, outcome
from gnomon.report.html.svg import as_file
from gnomon.report.lab import prediction
from gnomon.report.papers import amount, in_short
from gnomon.report.text import digits
from gnomon.techniques import AnyTechnique, compared_by, for_paper

FOLDER = Path(__file__).parents[2] / "docs" / "papers"
HEAD = (
    "Written by `make papers` from `src/gnomon/papers/clusters/{name}.yaml` and the papers of the cluster. "
    "[All papers](../papers.md), [how to use them](../papers-guide.md)."
)
STATES = {"built": "built", "partly": "in part", "missing": "not built"}


def pages(results: Mapping[str, Any]) -> dict[str, str]:
    """The text of every file in docs/papers, by its name."""
    found: dict[str, str] = {}
    computed = {one["slug"]: one for one in results["results"]}
    entries = gnomon.papers().to_dict()["papers"]
    for name, cluster in clusters().items():
        members = [entry for entry in entries if name in entry["clusters"]]
        found[f"{name}.md"] = _page(cluster, members, computed)
        found[f"{name}.svg"] = as_file(picture(cluster.picture))
    return found


def overview(entries: Sequence[Mapping[str, Any]]) -> str:
    """A table of all clusters, for the page of all papers."""
    rows = []
    for name, cluster in clusters().items():
        own = [entry for entry in entries if entry["clusters"][:1] == [name]]
        done = sum(bool(entry["holds"]) for entry in own)
        ran = sum(entry["status"] == "executed" for entry in own)
        rows.append((f"[{cluster.title}](papers/{name}.md)", cluster.summary, f"{len(own)}", f"{done}", f"{ran}"))
    return table(("cluster", "", "papers", "computed", "run"), rows)


def _page(cluster: PaperCluster, members: Sequence[Mapping[str, Any]], computed: Mapping[str, Any]) -> str:
    own = sorted((entry for entry in members if entry["clusters"][0] == cluster.name), key=_computed_first)
    beside = [entry for entry in members if entry["clusters"][0] != cluster.name]
    picture = f"![{cluster.picture['caption']}]({cluster.name}.svg)"
    parts = [f"# {cluster.title}\n", f"{cluster.summary}\n", HEAD.format(name=cluster.name) + "\n"]
    parts += ["## The idea\n", *(f"{text.strip()}\n" for text in cluster.idea)]
    scale = "" if cluster.picture["kind"] == "bars" else " Not to scale."
    parts += [f"{picture}\n", f"*{cluster.picture['caption']}{scale}*\n"]
    parts += ["## What the papers claim, what Gnomon computes\n", _claims(own, computed), *_silent(own)]
    parts += ["## What the lab measured\n", *_measured(own)]
    parts += ["## When to use it\n", *(f"{text.strip()}\n" for text in cluster.when), *_techniques(own)]
    parts += ["## What Gnomon has of it\n", _mechanisms(cluster), *_lacking(own)]
    if beside:
        parts += [f"Of other clusters and in need of the same: {', '.join(map(_linked, beside))}.\n"]
    return "\n".join(parts)


def _computed_first(entry: Mapping[str, Any]) -> tuple[bool, str]:
    return not entry["holds"], entry["slug"]


def _linked(entry: Mapping[str, Any]) -> str:
    return f"[`{entry['slug']}`]({entry['clusters'][0]}.md)"


def _claims(entries: Iterable[Mapping[str, Any]], computed: Mapping[str, Any]) -> str:
    """A row for each claim; ours is the first figure that stands for it, the verdict that of all of them."""
    rows: list[Sequence[str]] = []
    for entry in entries:
        known = computed.get(entry["slug"])
        for place, claim in enumerate(entry["claims"], 1):
            figures = [one for one in known["claims"] if one["claim"] == place] if known else []
            first = f"{_cite(entry)}" if place == 1 else ""
            rows.append((first, _said(claim), claim["value"], *_ours(figures, computed=known is not None)))
    return table(("paper", "claim", "claimed", "ours", "error", ""), rows)


def _cite(entry: Mapping[str, Any]) -> str:
    """`gptq`, which leads to its figures, with its year and status."""
    name = f"[`{entry['slug']}`](../papers.md#{entry['slug']})" if entry["holds"] else f"`{entry['slug']}`"
    return f"{name} {entry['date'][:4]}, {in_short(entry)}"


def _said(claim: Mapping[str, str]) -> str:
    against = f" against {claim['against']}" if claim["against"] else ""
    setting = f" ({claim['setting']})" if claim["setting"] else ""
    return f"{claim['what']}{against}{setting}"


def _ours(figures: Sequence[Mapping[str, Any]], *, computed: bool) -> Sequence[str]:
    if not figures:
        return "", "", "left out" if computed else "not computed"
    first = figures[0]
    more = f" and {len(figures) - 1} more" if len(figures) > 1 else ""
    error = "" if first["error"] is None else f"{first['error']:+.1%}"
    verdict = "within" if all(one["within"] for one in figures) else "**outside**"
    return f"{amount(first['ours'], first['unit'])}{more}", error, verdict


def _silent(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    found = [f"`{entry['slug']}`" for entry in entries if not entry["claims"]]
    return [f"Without a figure in the abstract: {', '.join(found)}.\n"] if found else []


def _measured(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The rows of the lab's stored runs: gains are sustained."""
    ran = [entry["slug"] for entry in entries if entry["slug"] in executed()]
    if not ran:
        return ["None of these has a stored run. `gnomon lab` lists what can be run.\n"]
    parts = []
    for slug in ran:
        found = outcome(slug)
        rows = [
            (row["what"], f"{digits(row['gain'])}x" if row["gain"] else "not known", prediction(row))
            for row in found["compared"]
        ]
        claim = found["comparable"]
        told = "comparable" if claim["comparable"] else "not comparable"
        parts += [f"`{slug}` on {found['device']}, {found['date']}; gain is plain over technique, sustained:\n"]
        parts += [table(("", "gain", "predicted"), rows)]
        parts += [f"The paper's claim, {claim['claim']}, is {told}: {claim['why']}.\n"]
    return parts


def _techniques(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """What plans can use of it, and how to try it."""
    known = [(entry["slug"], found[0]) for entry in entries if (found := for_paper(entry["slug"]))]
    if not known:
        return ["No technique of these papers can be put into a plan yet.\n"]
    lines = [f"- `{one.name}` (`{_command(slug, one)}`): {one.title}." for slug, one in known]
    return ["In plans ([techniques](../techniques.md)):\n", *lines, ""]


def _command(slug: str, one: AnyTechnique) -> str:
    command = compared_by(one)
    return f"gnomon try {slug} …" if command == "try" else f"gnomon {command} … --with {one.name}"


def _mechanisms(cluster: PaperCluster) -> str:
    rows = [(f"`{one.name}`", STATES[one.state], f"{one.what}", one.note) for one in cluster.mechanisms]
    return table(("mechanism", "", "what", "in Gnomon"), rows)


def _lacking(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why the others are not computed."""
    lines = [
        f"- `{entry['slug']}` needs {', '.join(f'`{name}`' for name in entry['mechanisms'])}: {entry['why']}"
        for entry in entries
        if not entry["holds"] and entry["why"]
    ]
    return ["Not computed, and why:\n", *lines, ""] if lines else []


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines) + "\n"
