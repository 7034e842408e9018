"""A finished file of answers at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnomon.spec.key_figures import FITS, KEY_FIGURES, KeyFigure
from gnomon.spec.sweep import SweepReport, thinned
from gnomon.store.sweeps import SweepPart, is_fault, rows

MOST_ROWS = 1000
"""Of the report; the file has all."""
MOST_ERRORS = 10


def summary(part: SweepPart, path: Path, out: str, found: int) -> SweepReport:
    """The answers of a finished file at a glance, read line by line."""
    questions, shown = part.sweep, set(thinned(len(part), MOST_ROWS))
    figures = KEY_FIGURES[questions.command]
    kept: list[dict[str, Any]] = []
    extremes: dict[str, dict[str, Any]] = {}
    errors: Counter[str] = Counter()
    first: dict[str, dict[str, int]] = {}
    faults = 0
    for place, row in enumerate(rows(path)):
        values = dict(_figures(figures, row.get("answer")))
        fits = FITS.of(row.get("answer"))
        faults += is_fault(row)
        if "error" in row:
            errors[row["error"]["message"]] += 1
            first.setdefault(row["error"]["message"], {"first": row["index"], "code": row["error"].get("code")})
        if fits is not False:
            _keep_extremes(extremes, figures, values, row["index"])
        if place in shown:
            swept = {name: row["question"].get(name) for name in questions.swept}
            kept.append(
                {"index": row["index"], "values": swept, "figures": values, "fits": fits, "error": row.get("error")}
            )
    refused = errors.total()
    best = next((extremes[one.name]["best"]["index"] for one in figures if one.name in extremes), None)
    names = ", ".join(questions.swept)
    return SweepReport(
        title=f"{questions.command}: {len(part):,} question{'s' * (len(part) != 1)}{f' over {names}' if names else ''}",
        command=questions.command,
        questions=len(part),
        answered=len(part) - refused,
        refused=refused,
        faults=faults,
        out=out,
        swept=questions.swept,
        figures=tuple(one.description for one in figures),
        rows=tuple(kept),
        extremes=extremes,
        errors=tuple(
            {"message": message, "count": count} | first[message] for message, count in errors.most_common(MOST_ERRORS)
        ),
        best_question={} if best is None else questions.question(best),
        found=found,
    )


def _figures(figures: Sequence[KeyFigure], found: Any) -> Iterator[tuple[str, Any]]:
    for figure in figures:
        value = figure.of(found)
        edges = {key: value.get(key) for key in ("value", "low", "high")} if isinstance(value, dict) else None
        if value is not None:
            yield figure.name, edges or value


def _keep_extremes(
    extremes: dict[str, dict[str, Any]], figures: Sequence[KeyFigure], values: Mapping[str, Any], index: int
) -> None:
    """Note the answer where it is better or worse than all before it."""
    for figure in figures:
        value = values.get(figure.name)
        number = value["value"] if isinstance(value, dict) else value
        if isinstance(number, (bool, str)) or number is None or figure.higher_is_better is None:
            continue
        sides = extremes.setdefault(figure.name, {})
        for side, higher in (("best", figure.higher_is_better), ("worst", not figure.higher_is_better)):
            before = sides.get(side)
            if before is None or (number > before["value"] if higher else number < before["value"]):
                sides[side] = {"index": index, "value": number}
