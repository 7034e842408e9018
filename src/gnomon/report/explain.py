"""The text of `gnomon explain`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gnomon.report.figures import Headline
from gnomon.report.text import Style, next_steps, words

MOST_OPERATORS = 6


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = [style.strong(payload["title"]), ""]
    for node in payload["nodes"]:
        lines += [*_lines(node, 1, style), ""]
    return "\n".join([*lines, *_next(payload)])


def figures(payload: Mapping[str, Any]) -> list[Headline]:
    """The numbers that are opened, as they are shown."""
    return [Headline(str(node["name"]), str(node["shown"])) for node in payload["nodes"][:MOST_OPERATORS]]


def _lines(node: Mapping[str, Any], depth: int, style: Style, *, brief: bool = False) -> Iterable[str]:
    pad = "  " * depth
    yield f"{pad}{style.strong(node['name'])}  {node['shown']}"
    formulas = [node["formula"], *(_in_brief(part) for part in node["parts"][:1] if brief)]
    if any(formulas):
        yield f"{pad}    = {'; '.join(filter(None, formulas))}"
    origin = ": ".join(filter(None, [node["provenance"], node["source"]]))
    if origin and not brief:
        yield style.faint(f"{pad}    from {origin}")
    if not brief:
        yield from _parts(node["parts"], depth + 1, style)


def _parts(parts: Sequence[Mapping[str, Any]], depth: int, style: Style) -> Iterable[str]:
    """All parts; of a phase only the largest operators, in brief, for `--op` opens any of them."""
    operators = [part for part in parts if part["level"] == "operator"]
    for part in operators[:MOST_OPERATORS]:
        yield from _lines(part, depth, style, brief=True)
    if len(operators) > MOST_OPERATORS:
        names = ", ".join(part["name"] for part in operators[MOST_OPERATORS:])
        yield f"{'  ' * depth}{len(operators) - MOST_OPERATORS} smaller: {names}"
    for origin in dict.fromkeys(": ".join(filter(None, [op["provenance"], op["source"]])) for op in operators):
        yield style.faint(f"{'  ' * depth}from {origin}")
    for part in parts:
        if part["level"] != "operator":
            yield from _lines(part, depth, style)


def _in_brief(part: Mapping[str, Any]) -> str:
    return f"{part['shown']} would take {part['formula']}"


def _next(payload: Mapping[str, Any]) -> list[str]:
    opened = any(node["level"] == "operator" for node in payload["nodes"])
    inner = [words("gnomon", "explain", payload["id"], "--op", name) for name in payload["ops"][:1]]
    steps = [words("gnomon", "explain", payload["id"])] if opened else inner
    return next_steps(
        *steps, "gnomon export last --out deploy" if payload["of"].startswith("plan") else "gnomon history"
    )
