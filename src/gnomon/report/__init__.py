"""Answers as text: the answer first, then why, then what to do next.

A report is made from the JSON of an answer, so a saved one reads the same as a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gnomon.report.text import NEXT, Style, assumed, legible, not_modelled

REPORTS = {
    "gnomon.predict/1": "gnomon.report.predict",
    "gnomon.fit/1": "gnomon.report.fit",
    "gnomon.simulate.serve/1": "gnomon.report.serve",
    "gnomon.simulate.train/1": "gnomon.report.train",
    "gnomon.plan.serve/1": "gnomon.report.plan",
    "gnomon.plan.train/1": "gnomon.report.plan_train",
    "gnomon.try/1": "gnomon.report.tried",
    "gnomon.techniques/1": "gnomon.report.techniques",
    "gnomon.verify/1": "gnomon.report.verify",
    "gnomon.launch/1": "gnomon.report.launch",
    "gnomon.explain/1": "gnomon.report.explain",
    "gnomon.history/1": "gnomon.report.history",
    "gnomon.calibrate/1": "gnomon.report.calibrate",
    "gnomon.calibrate.engine/1": "gnomon.report.calibrate_engine",
    "gnomon.calibrate.check/1": "gnomon.report.calibrate_engine",
    "gnomon.lab/1": "gnomon.report.lab",
    "gnomon.lab.list/1": "gnomon.report.lab",
    "gnomon.chips/1": "gnomon.report.chips",
    "gnomon.chips.new/1": "gnomon.report.chips",
    "gnomon.models/1": "gnomon.report.models",
    "gnomon.papers/1": "gnomon.report.papers",
    "gnomon.papers.show/1": "gnomon.report.papers",
    "gnomon.papers.run/1": "gnomon.report.papers",
}
"""Each module has `render(payload, style)`, which gives the text."""


def render(payload: Mapping[str, Any], *, colour: bool = False) -> str:
    """The text of an answer, told by its schema."""
    payload = legible(payload)
    text: str = import_module(REPORTS[payload["schema"]]).render(payload, Style(colour))
    notes = [*assumed(payload), *not_modelled(payload)]
    return _before_next(text, notes) if notes else text


def _before_next(text: str, lines: list[str]) -> str:
    """The text with lines of their own in front of its last ones, which say what to do next."""
    head, mark, tail = text.rpartition(f"\n{NEXT}")
    return "\n".join([head.rstrip("\n"), "", *lines, f"{mark}{tail}"]) if mark else "\n".join([text, "", *lines])
