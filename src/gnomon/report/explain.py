"""The text of `gnomon explain`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gnomon.report.figures import Headline
from gnomon.report.text import Style, next_steps, words
from gnomon.spec.answers import AnswerNode, Explanation

MOST_OPERATORS = 6
BY = "opened by "
"""How the formula of a part begins that a command opens."""


def render(answer: Explanation, style: Style) -> str:
    lines = [style.strong(answer.title), ""]
    for node in answer.nodes:
        lines += [*_lines(node, 1, style), ""]
    return "\n".join([*lines, *_next(answer)])


def figures(answer: Explanation) -> list[Headline]:
    """The numbers that are opened, as they are shown."""
    return [Headline(node.name, node.shown) for node in answer.nodes[:MOST_OPERATORS]]


def _lines(node: AnswerNode, depth: int, style: Style, *, brief: bool = False) -> Iterable[str]:
    pad = "  " * depth
    yield f"{pad}{style.strong(node.name)}  {node.shown}"
    formulas = [node.formula, *(f"{part.shown} would take {part.formula}" for part in node.parts[:1] if brief)]
    if any(formulas):
        yield f"{pad}    = {'; '.join(filter(None, formulas))}"
    if node.origin and not brief:
        yield style.faint(f"{pad}    from {node.origin}")
    if not brief:
        yield from _parts(node.parts, depth + 1, style)


def _parts(parts: Sequence[AnswerNode], depth: int, style: Style) -> Iterable[str]:
    """All parts; of a phase only the largest operators, in brief, for `--op` opens any of them."""
    operators = [part for part in parts if part.level == "operator"]
    for part in operators[:MOST_OPERATORS]:
        yield from _lines(part, depth, style, brief=True)
    if len(operators) > MOST_OPERATORS:
        names = ", ".join(part.name for part in operators[MOST_OPERATORS:])
        yield f"{'  ' * depth}{len(operators) - MOST_OPERATORS} smaller: {names}"
    for origin in dict.fromkeys(part.origin for part in operators):
        yield style.faint(f"{'  ' * depth}from {origin}")
    for part in parts:
        if part.level != "operator":
            yield from _lines(part, depth, style)


def _next(answer: Explanation) -> list[str]:
    """The largest operator, or what opens the step behind a plan; then the files of a plan, or what else is kept."""
    opened = any(node.level == "operator" for node in answer.nodes)
    inner = [words("gnomon", "explain", answer.id, "--op", name) for name in answer.ops[:1]]
    inner += [
        part.formula.removeprefix(BY) for node in answer.nodes for part in node.parts if part.formula.startswith(BY)
    ]
    folder = f"deploy-{Path(answer.id).stem.rpartition('-')[2]}"
    export = words("gnomon", "export", answer.id, "--out", folder)
    last = export if answer.of.startswith("plan") else "gnomon history"
    return next_steps(*([words("gnomon", "explain", answer.id)] if opened else inner), last)
