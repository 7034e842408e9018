"""A training technique on a model and its chips: the best plan with it against the best without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gnomon.planning.training.best import best_of
from gnomon.planning.training.binding import TrainingBinding
from gnomon.planning.training.checks import check_chips
from gnomon.planning.training.report import report_step
from gnomon.planning.training.search import Search, search_of, step_of_row
from gnomon.spec import Estimate, TrainingLoad
from gnomon.spec.answers import TrainingReport
from gnomon.spec.questions.tried import TryQuestion
from gnomon.spec.tried import NO_CHANGE, NONE, TechniqueComparison, times
from gnomon.techniques import AnyTechnique, Trial, variants
from gnomon.units import format_bytes

SEQ, EACH_CHIP = 8192, 8
"""Default tokens per sequence and sequences per chip."""
LITTLE_BYTES = 0.05 * 2**30
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """The best plan with and without a technique, None where there is none, and why none uses it."""

    before: TrainingReport | None
    after: TrainingReport | None
    neither: TrainingReport | None = None
    """The best plan without the technique and without what it is compared with."""
    why: str = ""

    @property
    def gain(self) -> Estimate | None:
        """How many times faster a step is with it."""
        return self.before.step_time_s.over(self.after.step_time_s) if self.before and self.after else None


def compare_training(
    one: AnyTechnique, trial: Trial, question: TryQuestion, bound: TrainingBinding, progress: Progress | None
) -> TechniqueComparison:
    """The best plan with a technique against the best without. Errors name the fields of a plan.

    Where neither the technique nor what it is compared with applies, it is compared with plans without either.
    """
    check_chips(bound.pool.count)
    load = TrainingLoad(
        seq=min(SEQ, bound.model.max_context) if question.seq is None else question.seq,
        global_batch=EACH_CHIP * bound.pool.count if question.global_batch is None else question.global_batch,
    )
    optimizer = question.optimizer or "adamw"
    plain = search_of(bound, load, optimizer, question.dtype)
    without, within = _spaces(one, trial, plain)
    if trial.against and not any(_applies(search) for search in (*without, *within)):
        trial, without = replace(trial, against=""), [plain]
    before, after = (_best(searches, progress) for searches in (without, within))
    found = _Compared(
        before=before,
        after=after,
        neither=_best([plain], progress) if trial.against and one.searched else None,
        why="" if after else _reject_reason(plain, within),
    )
    inputs = {"model": bound.name, "on": bound.pool.words, "seq": load.seq, "global_batch": load.global_batch}
    inputs |= {"optimizer": optimizer, "dtype": plain.dtype, "engine": f"{bound.engine.name}@{bound.engine.version}"}
    return _comparison(one, trial, found, inputs)


def _spaces(one: AnyTechnique, trial: Trial, plain: Search) -> tuple[list[Search], list[Search]]:
    """Plans without the technique and plans with it. A technique that is a choice of plan divides the grid."""
    ways = one.ways(plain.grid)
    if ways is not None:
        rest = ~np.logical_or.reduce([np.zeros(plain.grid.size, bool), *ways.values()])
        within = [
            replace(plain, grid=plain.grid.pick(np.flatnonzero(rows)), techniques=(words,) if words else ())
            for words, rows in ways.items()
            if rows.any()
        ]
        return [replace(plain, grid=plain.grid.pick(np.flatnonzero(rest)))], within
    against = (trial.against,) if trial.against else ()
    return [replace(plain, techniques=against)], [replace(plain, techniques=(words,)) for words in variants(trial)]


def _applies(search: Search) -> bool:
    """Whether its techniques apply to any plan."""
    return not search.applied or bool(search.allowed.any())


def _best(searches: Sequence[Search], progress: Progress | None) -> TrainingReport | None:
    fitting = [search for search in searches if search.grid.size and search.fits.any()]
    if not fitting:
        return None
    search, found = best_of(fitting, progress)
    return report_step(step_of_row(search, found.best))


def _reject_reason(plain: Search, within: Sequence[Search]) -> str:
    """Why no plan uses the technique."""
    if not within:
        return f"no plan of {plain.model.name} on {plain.pool.words} could use it"
    search = within[0]
    if not _applies(search):
        return search.applied.reject_reason(search.case)
    return "no plan with it fits in memory"


def _comparison(one: AnyTechnique, trial: Trial, found: _Compared, inputs: Mapping[str, Any]) -> TechniqueComparison:
    before, after, neither, gain = found.before, found.after, found.neither, found.gain
    helps, verdict = _verdict(found, trial.against)
    if helps and neither and after and neither.step_time_s.value < after.step_time_s.value:
        faster = times(after.step_time_s.over(neither.step_time_s))
        helps, verdict = False, f"{NONE}: without either the model fits, and a step is {faster}."
    report = after or before
    missing = {} if before else {"plain": "none fits"}
    missing |= {} if after else {"applied": "not used"}
    return TechniqueComparison(
        title=report.title if report else f"{inputs['model']} on {inputs['on']}",
        paper=trial.paper,
        technique=" ".join(after.plan.strategy.techniques) if after and after.plan.strategy.techniques else one.name,
        idea=one.idea,
        against=trial.against,
        plain=_figures(before),
        applied=_figures(after),
        gain=gain,
        memory_saved_bytes=_saved(before, after) if before and after else None,
        note=trial.note,
        helps=helps,
        verdict=verdict,
        missing=missing,
        assumed=after.assumed if after else (),
        inputs=inputs,
        reports=(before, after),
    )


def _saved(before: TrainingReport, after: TrainingReport) -> float:
    return before.peak_memory_bytes.value - after.peak_memory_bytes.value


def _verdict(found: _Compared, against: str) -> tuple[bool, str]:
    before, after, gain = found.before, found.after, found.gain
    if after is None:
        return False, f"{NONE}: {found.why}{'' if before else ', nor does any plan without it fit'}."
    if before is None or gain is None:
        return True, f"Without it no plan fits in memory; with it one does{_host(after)}."
    room = _room(before, after)
    if gain.value > 1 + NO_CHANGE:
        sure = "" if gain.low > 1 else ", but the 90% interval includes 1"
        return True, f"{times(gain)}{f' than {against}' if against else ''}{room}{sure}."
    if gain.value >= 1 - NO_CHANGE:
        return False, f"{NONE}: a step is equally fast without it{room}."
    return False, f"{NONE}: the model fits without it, and with it a step is {times(gain)}{room}."


def _room(before: TrainingReport, after: TrainingReport) -> str:
    """How the technique changes the memory of the same plan; nothing is said where the plans differ."""
    same = before.plan.engine == after.plan.engine and _degrees(before) == _degrees(after)
    saved = _saved(before, after)
    if not same:
        return "; the best plan with it is another one"
    if abs(saved) < LITTLE_BYTES:
        return ""
    return f"; with it a chip needs {format_bytes(abs(saved))} {'less' if saved > 0 else 'more'}"


def _host(after: TrainingReport) -> str:
    return f", with {format_bytes(after.host_bytes)} in the memory of each host" if after.host_bytes else ""


def _degrees(report: TrainingReport) -> dict[str, int]:
    return {name: getattr(report.plan.strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}


def _figures(report: TrainingReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        "step_time_s": report.step_time_s,
        "mfu": report.mfu,
        "peak_memory_bytes": report.peak_memory_bytes.value,
        "cost_usd": report.cost_usd,
        "degrees": _degrees(report),
        "settings": dict(report.plan.engine.settings),
        "techniques": list(report.plan.strategy.techniques),
    }
