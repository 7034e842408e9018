"""Which techniques help a plan: the best plan on its chips with each, and with pairs of those that help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, count, product
from typing import Any, Protocol

from gnomon.errors import GnomonError, NotApplicableError
from gnomon.spec import Estimate
from gnomon.spec.applied import TechniqueRow
from gnomon.spec.tried import NO_CHANGE
from gnomon.techniques import AnyTechnique, applied, canonical, technique, techniques, words

PAIRED = 4
"""Techniques of which pairs are tried: those that help most by themselves."""
GAIN_UNSURE = "the 90% interval includes 1"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """A best plan."""

    speed: Estimate
    """Work in a second: steps, or requests."""
    label: str


class Planned(Protocol):
    """A plan's model, chips and work, planned again with techniques."""

    @property
    def work(self) -> Any:
        """`training` or `serving`."""

    @property
    def own(self) -> tuple[str, ...]:
        """What the plan has already."""

    def best(self, more: Sequence[str]) -> Best:
        """The best plan with `more` techniques than its own; raises where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applications:
    """Every technique by itself, the pairs, and the plan without."""

    without: Best | None
    each: tuple[TechniqueRow, ...]
    pairs: tuple[TechniqueRow, ...]

    @property
    def best(self) -> tuple[str, ...]:
        """The fewest techniques that gain the most."""
        helpful = [row for row in (*self.each, *self.pairs) if row.helps]
        return max(helpful, key=_worth).techniques if helpful else ()


def applied_each(planned: Planned, progress: Progress | None = None) -> Applications:
    """Every technique of the plan's kind of work, then pairs of the best values of those that help."""
    singles = [(words,) for words in _candidates(planned)]
    try:
        without: Best | None = planned.best(())
    except GnomonError:
        without = None
    known = len(singles) + PAIRED * (PAIRED - 1) // 2
    tried = count()

    def row(more: tuple[str, ...]) -> TechniqueRow:
        if progress:
            progress(next(tried), known)
        return _row(planned, more, without)

    each = sorted(map(row, singles), key=_order)
    pairs = [one.techniques + other.techniques for one, other in combinations(_leading(each), 2)]
    together = sorted((row(pair) for pair in pairs if _compatible(planned, pair)), key=_order)
    return Applications(without=without, each=tuple(each), pairs=tuple(together))


def _candidates(planned: Planned) -> Iterator[str]:
    """Techniques that a plan may be given, each with the values worth trying and those that papers use."""
    own = {canonical(text) for text in planned.own}
    for one in techniques().values():
        if planned.work in one.work and one.searched and one.name not in own:
            yield from dict.fromkeys([*_tried(one), *(trial.words for trial in one.trials if _of(one, trial.words))])


def _of(one: AnyTechnique, text: str) -> bool:
    return canonical(text) == one.name


def _tried(one: AnyTechnique) -> Iterator[str]:
    tried = {parameter.name: parameter.tried for parameter in one.parameters if parameter.tried}
    for values in product(*tried.values()):
        yield words(one.name, dict(zip(tried, values, strict=True)))


def _row(planned: Planned, more: tuple[str, ...], without: Best | None) -> TechniqueRow:
    known = [technique(canonical(text)) for text in more]
    row = TechniqueRow(
        name=" + ".join(more),
        techniques=more,
        papers=tuple(dict.fromkeys(trial.paper for one in known for trial in one.trials if trial.paper)),
        gain=None,
        helps=False,
        lossless=not any("precision" in one.changes for one in known),
        label="",
        why="",
    )
    try:
        found = planned.best(more)
    except GnomonError as error:
        return replace(row, why=error.reason if isinstance(error, NotApplicableError) else error.message)
    if without is None:
        return replace(row, helps=True, label=found.label, why="no plan runs without it")
    gain = found.speed.over(without.speed)
    helps = gain.value > 1 + NO_CHANGE
    return replace(row, gain=gain, helps=helps, label=found.label, why=GAIN_UNSURE if helps and gain.low <= 1 else "")


def _worth(row: TechniqueRow) -> tuple[float, int]:
    """A gain to a hundredth, then fewer techniques. What makes a plan run at all is worth more than any gain."""
    return (round(row.gain.value, 2) if row.gain else float("inf")), -len(row.techniques)


def _order(row: TechniqueRow) -> tuple[bool, float]:
    return not row.helps, -(row.gain.value if row.gain else float("inf" if row.helps else "-inf"))


def _leading(ranked: Sequence[TechniqueRow]) -> list[TechniqueRow]:
    """The best values of each technique that helps, at most as many as are paired."""
    found: dict[str, TechniqueRow] = {}
    for row in ranked:
        if row.helps:
            found.setdefault(canonical(row.name), row)
    return list(found.values())[:PAIRED]


def _compatible(planned: Planned, pair: tuple[str, ...]) -> bool:
    """Whether two techniques, and those of the plan, may be combined at all."""
    try:
        applied(planned.work, (*planned.own, *pair))
    except GnomonError:
        return False
    return True
