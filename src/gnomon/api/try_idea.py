"""What a paper's idea would bring on a model and chips of the user's: the best plan with it beside the best without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.api.plan_training import best_of, step_report
from gnomon.api.simulate_training import as_flags, check_chips, load_of
from gnomon.engines import training_engine
from gnomon.errors import GnomonError, InputError, named_as, named_by, unknown_name
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.recipe import OPTIMIZERS
from gnomon.planning.training.search import Search, search_of
from gnomon.spec import Estimate
from gnomon.spec.answers import TrainingReport
from gnomon.spec.tried import MODEL, NO_CHANGE, NONE, Tried, times
from gnomon.techniques import (
    WHERE,
    Technique,
    TrainingTechnique,
    Trial,
    canonical,
    for_paper,
    techniques,
    trial_with,
    variants,
)
from gnomon.units import format_bytes

SEQ, EACH_CHIP = 8192, 8
"""Tokens of a sequence and sequences a chip, where nothing else is asked for."""
LITTLE_BYTES = 0.05 * 2**30
Progress = Callable[[int], None]


def try_idea(
    name: str,
    *,
    model: str | Path,
    on: str,
    seq: int | None = None,
    global_batch: int | None = None,
    batch: int | None = None,
    context: int | None = None,
    optimizer: str | None = None,
    dtype: str | None = None,
    engine: str | None = None,
    progress: Progress | None = None,
) -> Tried:
    """The idea of a paper (its slug), or a technique by its own name, on a model and chips.

    Ideas of training take `seq` and `global_batch`, those of serving `batch` and `context`.
    """
    with named_by("SLUG"), named_as(WHERE, "SLUG"):
        one, trial = idea_of(name)
    training = {"--seq": seq, "--global-batch": global_batch, "--optimizer": optimizer, "--engine": engine}
    _check_words(one, training, {"--batch": batch, "--context": context})
    if not isinstance(one, TrainingTechnique):
        from gnomon.api.try_serving import CONTEXT, try_serving

        context = min(CONTEXT, load_model(model).max_context) if context is None else context
        return try_serving(one, trial, model=model, on=on, batch=batch, context=context, dtype=dtype)
    pool, optimizer = parse_pool(on), optimizer or "adamw"
    check_chips(pool.count, "--on")
    if optimizer not in OPTIMIZERS:
        raise unknown_name("optimizer", optimizer, OPTIMIZERS, where="--optimizer")
    seq = min(SEQ, load_model(model).max_context) if seq is None else seq
    load = load_of(seq, EACH_CHIP * pool.count if global_batch is None else global_batch, None)
    try:
        plain = search_of(load_model(model), pool, load, training_engine(engine or "megatron"), optimizer, dtype)
        without, within = _spaces(one, trial, plain)
        before, after = (_best(str(model), searches, progress) for searches in (without, within))
        beside = _best(str(model), [plain], progress) if trial.against and one.searched else None
    except GnomonError as error:
        error.where, error.hint = as_flags(error.where).replace("MODEL", MODEL), as_flags(error.hint)
        raise
    inputs = {"model": str(model), "on": pool.words, "seq": load.seq, "global_batch": load.global_batch}
    inputs |= {"optimizer": optimizer, "dtype": plain.dtype, "engine": f"{plain.engine.name}@{plain.engine.version}"}
    why = "" if after else _why_not(plain, within)
    return _tried(one, trial, before, after, why, inputs, beside)


def _check_words(one: Technique, training: Mapping[str, Any], serving: Mapping[str, Any]) -> None:
    for flag, value in (serving if one.work == "training" else training).items():
        if value is not None:
            raise InputError(f"{one.name} is an idea of {one.work}", where=flag, hint="Leave it out.")


def idea_of(name: str) -> tuple[Technique, Trial]:
    """A technique and how it is tried, by a paper's slug or by its own name: against what its paper compares with."""
    name, colon, more = name.partition(":")
    found, known = for_paper(name), techniques()
    if found is None and canonical(name) in known:
        one = known[canonical(name)]
        found = one, replace(one.trials[0], words=one.name, note="")
    if found is None:
        papers = {trial.paper for one in known.values() for trial in one.trials}
        raise unknown_name("idea to try", name, sorted({*papers, *known}), where="SLUG")
    one, trial = found
    return (one, replace(trial_with(trial, more), note="")) if colon else (one, trial)


def _spaces(one: TrainingTechnique, trial: Trial, plain: Search) -> tuple[list[Search], list[Search]]:
    """Plans without the idea and plans with it. Where plans are what it changes, the grid is divided."""
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


def _best(model: str, searches: Sequence[Search], progress: Progress | None) -> TrainingReport | None:
    fitting = [search for search in searches if search.grid.size and search.fits.any()]
    if not fitting:
        return None
    search, found = best_of(fitting, progress)
    return step_report(model, search, found.best)


def _why_not(plain: Search, within: Sequence[Search]) -> str:
    """The reason that no plan uses it."""
    if not within:
        return f"no plan of {plain.model.name} on {plain.pool.words} could use it"
    search = within[0]
    if search.applied and not search.allowed.any():
        row = 0
        return search.applied.why_not(search.case, search.grid.strategy(row), search.grid.recipe(row, search.optimizer))
    return "no plan with it fits in memory"


def _tried(
    one: Technique, trial: Trial, before: TrainingReport | None, after: TrainingReport | None, why: str,
    inputs: Mapping[str, Any], beside: TrainingReport | None,
) -> Tried:  # fmt: skip
    gain = saved = None
    if before and after:
        gain = before.step_time_s.over(after.step_time_s)
        saved = before.peak_memory_bytes.value - after.peak_memory_bytes.value
    helps, verdict = _verdict(before, after, gain, why, trial.against)
    if helps and beside and after and beside.step_time_s.value < after.step_time_s.value:
        faster = times(after.step_time_s.over(beside.step_time_s))
        helps, verdict = False, f"{NONE}: without either all fits, and a step is {faster}."
    report = after or before
    missing = {} if before else {"plain": "none fits"}
    missing |= {} if after else {"applied": "not used"}
    title = report.title if report else f"{inputs['model']} on {inputs['on']}"
    return Tried(
        title=title,
        paper=trial.paper,
        technique=" ".join(after.plan.strategy.techniques) if after and after.plan.strategy.techniques else one.name,
        idea=one.idea,
        against=trial.against,
        plain=_figures(before),
        applied=_figures(after),
        gain=gain,
        memory_saved_bytes=saved,
        note=trial.note,
        helps=helps,
        verdict=verdict,
        missing=missing,
        assumed=after.assumed if after else (),
        inputs=inputs,
        reports=(before, after),
    )


def _verdict(
    before: TrainingReport | None, after: TrainingReport | None, gain: Estimate | None, why: str, against: str
) -> tuple[bool, str]:
    if after is None:
        return False, f"{NONE}: {why}{'' if before else ', nor does any plan without it fit'}."
    if before is None or gain is None:
        return True, f"Without it nothing fits in memory; with it this does{_host(after)}."
    room = _room(before, after)
    if gain.value > 1 + NO_CHANGE:
        sure = "" if gain.low > 1 else ", which the interval does not make certain"
        return True, f"{times(gain)}{f' than {against}' if against else ''}{room}{sure}."
    if gain.value >= 1 - NO_CHANGE:
        return False, f"{NONE}: a step is equally fast without it{room}."
    return False, f"{NONE}: all fits without it, and with it a step is {times(gain)}{room}."


def _room(before: TrainingReport, after: TrainingReport) -> str:
    """What the same plan needs with it; of another plan that is not the idea's doing."""
    same = before.plan.engine == after.plan.engine and _degrees(before) == _degrees(after)
    saved = before.peak_memory_bytes.value - after.peak_memory_bytes.value
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
