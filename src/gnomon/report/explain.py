"""The text of `gnomon explain`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gnomon.report.text import Style, next_steps, words


def render(payload: Mapping[str, Any], style: Style) -> str:
    lines = [style.strong(payload["title"]), ""]
    for node in payload["nodes"]:
        lines += [*_lines(node, 1, style), ""]
    return "\n".join([*lines, *_next(payload)])


def _lines(node: Mapping[str, Any], depth: int, style: Style) -> Iterable[str]:
    pad = "  " * depth
    yield f"{pad}{style.strong(node['name'])}  {node['shown']}"
    if node["formula"]:
        yield f"{pad}    = {node['formula']}"
    origin = ": ".join(filter(None, [node["provenance"], node["source"]]))
    if origin:
        yield style.faint(f"{pad}    from {origin}")
    for part in node["parts"]:
        yield from _lines(part, depth + 1, style)


def _next(payload: Mapping[str, Any]) -> list[str]:
    operators = [words("gnomon", "explain", payload["id"], "--op", name) for name in payload["ops"][:1]]
    more = ["gnomon export last --out deploy"] if payload["of"].startswith("plan") else ["gnomon history"]
    return next_steps(*operators, *more)
