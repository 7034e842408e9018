"""The text of `gnomon papers apply`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gnomon.report.figures import Headline, interval
from gnomon.report.text import INDENT, Style, headed, labelled, next_steps, plural, words
from gnomon.spec.applied import HelpfulTechniques, TechniqueRow
from gnomon.spec.estimate import Estimate

MOST_REFUSED = 12


def render(answer: HelpfulTechniques, style: Style) -> str:
    lines = [style.strong(answer.title), "", f"{INDENT}{style.strong(_verdict(answer))}", ""]
    lines += [labelled("without", answer.without or "no plan runs"), ""]
    tried = [row for row in answer.techniques if row.label]
    lines += _table("by itself", tried, style)
    lines += _table("in pairs", [row for row in answer.pairs if row.label], style)
    lines += _refused([row for row in (*answer.techniques, *answer.pairs) if not row.label])
    return "\n".join([*lines, *next_steps(*_next(answer))])


def figures(answer: HelpfulTechniques) -> list[Headline]:
    """What helps most."""
    found = best_row(answer)
    if found is None or found.gain is None:
        return [Headline("best", found.name if found else "none")]
    return [Headline(found.name, f"{found.gain.value:.2f}x", interval(found.gain, lambda value: f"{value:.2f}"))]


def best_row(answer: HelpfulTechniques) -> TechniqueRow | None:
    """The row of the techniques that help most."""
    rows = (row for row in (*answer.techniques, *answer.pairs) if row.techniques == answer.best)
    return next(rows, None) if answer.best else None


def _verdict(answer: HelpfulTechniques) -> str:
    found = best_row(answer)
    if found is None:
        return f"No technique improves {answer.measure}."
    told = f"{found.name} helps most: " + (
        f"{found.gain.value:.2f}x in {answer.measure}{_band(found.gain)}" if found.gain else found.why
    )
    return told if found.lossless else f"{told}, in a narrower number format"


def _band(gain: Estimate) -> str:
    return f" ({gain.low:.2f} to {gain.high:.2f}, 90%)" if gain.low < gain.high else ""


def _table(head: str, rows: Sequence[TechniqueRow], style: Style) -> list[str]:
    if not rows:
        return []
    return [*headed([(head, "gain", "90%", "paper", "best plan with it"), *map(_row, rows)], "<>><<", style), ""]


def _row(row: TechniqueRow) -> tuple[str, ...]:
    gain = f"{row.gain.value:.2f}x" if row.gain else "runs"
    doubt = f"{row.gain.low:.2f} to {row.gain.high:.2f}" if row.gain and row.gain.low < row.gain.high else ""
    return row.name, gain, doubt, ", ".join(row.papers), row.label


def _refused(rows: Sequence[TechniqueRow]) -> Iterator[str]:
    """What applies to no plan, and why."""
    if not rows:
        return
    yield f"{INDENT}not possible:"
    for row in rows[:MOST_REFUSED]:
        yield f"{INDENT}  {row.why if row.why.startswith(row.name) else f'{row.name}: {row.why}'}"
    if len(rows) > MOST_REFUSED:
        yield f"{INDENT}  and {plural(len(rows) - MOST_REFUSED, 'more')}"
    yield ""


def _next(answer: HelpfulTechniques) -> list[str]:
    found = best_row(answer)
    papers = found.papers if found else ()
    return [*(words("gnomon", "papers", "show", paper) for paper in papers), "gnomon techniques"]
