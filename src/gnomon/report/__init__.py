"""Answers as text: the answer first, then why, then what to do next.

A report is made from the answer alone, and nothing is looked up for it: a saved one reads the same as a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gnomon.errors import shortened
from gnomon.report.text import NEXT, Style, footer, legible, plural
from gnomon.spec.answers import Result

REPORTS = {
    "gnomon.predict/1": "gnomon.report.predict",
    "gnomon.fit/1": "gnomon.report.fit",
    "gnomon.simulate.serve/1": "gnomon.report.serve",
    "gnomon.simulate.train/1": "gnomon.report.train",
    "gnomon.plan.serve/1": "gnomon.report.plan",
    "gnomon.plan.train/1": "gnomon.report.plan_train",
    "gnomon.try/1": "gnomon.report.tried",
    "gnomon.sweep/1": "gnomon.report.sweep",
    "gnomon.compare/1": "gnomon.report.compare",
    "gnomon.tune/1": "gnomon.report.tuned",
    "gnomon.import/1": "gnomon.report.imported",
    "gnomon.export/1": "gnomon.report.export",
    "gnomon.accuracy/1": "gnomon.report.accuracy",
    "gnomon.techniques/1": "gnomon.report.techniques",
    "gnomon.verify/1": "gnomon.report.verify",
    "gnomon.launch/1": "gnomon.report.launch",
    "gnomon.explain/1": "gnomon.report.explain",
    "gnomon.history/1": "gnomon.report.history",
    "gnomon.calibrate/1": "gnomon.report.calibrate",
    "gnomon.calibrate.engine/1": "gnomon.report.calibrate_engine",
    "gnomon.calibrate.check/1": "gnomon.report.calibrate_engine",
    "gnomon.calibrate.quick/1": "gnomon.report.calibrate_quick",
    "gnomon.lab/1": "gnomon.report.lab",
    "gnomon.lab.list/1": "gnomon.report.lab",
    "gnomon.lab.batch/1": "gnomon.report.lab",
    "gnomon.lab.predict/1": "gnomon.report.lab",
    "gnomon.chips/1": "gnomon.report.chips",
    "gnomon.chips.new/1": "gnomon.report.chips",
    "gnomon.models/1": "gnomon.report.models",
    "gnomon.papers/1": "gnomon.report.papers",
    "gnomon.papers.show/1": "gnomon.report.papers",
    "gnomon.papers.run/1": "gnomon.report.papers",
    "gnomon.papers.apply/1": "gnomon.report.applied",
    "gnomon.papers.cite/1": "gnomon.report.papers",
    "gnomon.papers.new/1": "gnomon.report.papers",
}
"""By schema. Each module has `render(answer, style)`, which gives the text, and may have `figures(answer)`, the
headline figures."""
VERBATIM = ("gnomon.export/1", "gnomon.papers.cite/1")
"""Answers whose text is a file's, which is shown as it is."""
LONGEST, LEAST_TITLE, MOST_FIGURES = 160, 40, 3
"""Letters of an answer in a line, of its title at least, and headline figures."""


def render(answer: Result, *, colour: bool = False) -> str:
    """The text of an answer."""
    answer = answer if answer.schema in VERBATIM else legible(answer)
    text: str = import_module(REPORTS[answer.schema]).render(answer, Style(colour))
    notes = footer(answer)
    return _before_next(text, notes) if notes else text


def in_a_line(answer: Result) -> str:
    """What an answer is about and its first figures, as `repr` has them; of a part of one, its plain fields."""
    answer = legible(answer)
    module = import_module(REPORTS[answer.schema]) if answer.schema else None
    if module is not None and hasattr(module, "figures"):
        shown = module.figures(answer)[:MOST_FIGURES]
        told = [str(figure) if figure.name in figure.value else f"{figure.name} {figure}" for figure in shown]
    else:
        given = ((name, value) for name, value in answer.to_dict().items() if value is not None)
        told = [f"{name}={_word(value)}" for name, value in given if name not in ("schema", "title")]
    figures = shortened(", ".join(told), LONGEST - LEAST_TITLE)
    title = shortened(str(getattr(answer, "title", "")), LONGEST - len(figures))
    return "; ".join(filter(None, [title, figures]))


def _word(value: Any) -> str:
    """A field in a few letters: an estimate by its value, a list or a mapping by how much it holds."""
    if isinstance(value, Mapping):
        return f"{value['value']:g}" if "value" in value else plural(len(value), "field")
    if isinstance(value, list):
        return plural(len(value), "entry", "entries")
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _before_next(text: str, lines: list[str]) -> str:
    """The text with lines of their own in front of its last ones, which say what to do next."""
    head, mark, tail = text.rpartition(f"\n{NEXT}")
    return "\n".join([head.rstrip("\n"), "", *lines, f"{mark}{tail}"]) if mark else "\n".join([text, "", *lines])
