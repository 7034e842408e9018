"""What a paper's idea would bring on a model and chips of the user's: the best plan with it beside the best without."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gnomon.api.plan_training import best_of, step_report
from gnomon.api.results import TrainingReport
from gnomon.api.simulate_training import as_flags, check_chips, load_of
from gnomon.api.train_search import Search, search_of
from gnomon.api.tried import NO_CHANGE, Tried
from gnomon.engines import training_engine
from gnomon.errors import GnomonError, InputError, unknown_name
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.spec import Estimate
from gnomon.techniques import Technique, TrainingTechnique, Trial, for_paper, techniques, variants
from gnomon.units import format_bytes

SEQ, EACH_CHIP = 8192, 8
"""Tokens of a sequence and sequences a chip, where nothing else is asked for."""
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
    optimizer: str = "adamw",
    dtype: str | None = None,
    engine: str = "megatron",
    progress: Progress | None = None,
) -> Tried:
    """The idea of a paper (its slug), or a technique by its own name, on a model and chips.

    Ideas of training take `seq` and `global_batch`, those of serving `batch` and `context`.
    """
    one, trial = idea_of(name)
    _check_words(one, {"--seq": seq, "--global-batch": global_batch}, {"--batch": batch, "--context": context})
    if not isinstance(one, TrainingTechnique):
        from gnomon.api.try_serving import BATCH, CONTEXT, try_serving

        return try_serving(
            one, trial, model=model, on=on, batch=batch or BATCH, context=context or CONTEXT, dtype=dtype
        )
    pool = parse_pool(on)
    check_chips(pool.count, "--on")
    load = load_of(seq or SEQ, global_batch or EACH_CHIP * pool.count, None)
    try:
        plain = search_of(load_model(model), pool, load, training_engine(engine), optimizer, dtype)
        without, within = _spaces(one, trial, plain)
        before, after = (_best(str(model), searches, progress) for searches in (without, within))
    except GnomonError as error:
        error.where, error.hint = as_flags(error.where), as_flags(error.hint)
        raise
    inputs = {"model": str(model), "on": pool.words, "seq": load.seq, "global_batch": load.global_batch}
    inputs |= {"optimizer": optimizer, "dtype": plain.dtype, "engine": f"{plain.engine.name}@{plain.engine.version}"}
    why = "" if after else _why_not(one, within)
    return _tried(one, trial, before, after, why, inputs)


def _check_words(one: Technique, training: Mapping[str, Any], serving: Mapping[str, Any]) -> None:
    for flag, value in (serving if one.work == "training" else training).items():
        if value is not None:
            raise InputError(f"{one.name} is an idea of {one.work}", where=flag, hint="Leave it out.")


def idea_of(name: str) -> tuple[Technique, Trial]:
    """A technique and how it is tried, by a paper's slug or its own name."""
    found = for_paper(name)
    if found:
        return found
    known = techniques()
    if name in known:
        return known[name], replace(known[name].trials[0], words=name)
    papers = {trial.paper for one in known.values() for trial in one.trials}
    raise unknown_name("idea to try", name, sorted({*papers, *known}), where="SLUG")


def _spaces(one: TrainingTechnique, trial: Trial, plain: Search) -> tuple[list[Search], list[Search]]:
    """Plans without the idea and plans with it. Where plans are what it changes, the grid is divided."""
    ways = one.ways(plain.grid)
    if ways is not None:
        within, without = (replace(plain, grid=plain.grid.pick(np.flatnonzero(rows))) for rows in ways)
        return [without], [within]
    against = (trial.against,) if trial.against else ()
    return [replace(plain, techniques=against)], [
        replace(plain, techniques=(words,)) for words in variants(trial.words)
    ]


def _best(model: str, searches: Sequence[Search], progress: Progress | None) -> TrainingReport | None:
    fitting = [search for search in searches if search.grid.size and search.fits.any()]
    if not fitting:
        return None
    search, found = best_of(fitting, progress)
    return step_report(model, search, found.best)


def _why_not(one: Technique, within: Sequence[Search]) -> str:
    """The reason that no plan uses it."""
    search = within[0]
    if not search.grid.size:
        return f"no plan of {search.model.name} on {search.pool.words} could use it"
    if search.applied and not search.allowed.any():
        row = 0
        return search.applied.why_not(search.case, search.grid.strategy(row), search.grid.recipe(row, search.optimizer))
    return "no plan with it fits in memory either"


def _tried(
    one: Technique, trial: Trial, before: TrainingReport | None, after: TrainingReport | None, why: str,
    inputs: Mapping[str, Any],
) -> Tried:  # fmt: skip
    gain = saved = None
    if before and after:
        gain = before.step_time_s.over(after.step_time_s)
        saved = before.peak_memory_bytes.value - after.peak_memory_bytes.value
    helps, verdict = _verdict(before, after, gain, saved, why)
    report = after or before
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
        helps=helps,
        verdict=verdict,
        inputs=inputs,
        reports=(before, after),
    )


def _verdict(
    before: TrainingReport | None, after: TrainingReport | None, gain: Estimate | None, saved: float | None, why: str
) -> tuple[bool, str]:
    if after is None:
        return False, f"It brings nothing here: {why}."
    if before is None or gain is None or saved is None:
        return True, "Without it nothing fits in memory; with it this does."
    room = f"{format_bytes(abs(saved))} {'less' if saved > 0 else 'more'} memory"
    if gain.value > 1 + NO_CHANGE:
        sure = "" if gain.low > 1 else ", which the band does not make certain"
        return True, f"{gain.value:.2f}x as quick ({gain.low:.2f} to {gain.high:.2f}, 90%), with {room}{sure}."
    if gain.value >= 1 - NO_CHANGE:
        return False, f"It brings nothing here: as quick as without it, with {room}."
    return False, f"It brings nothing here: without it all fits, and a step is {1 / gain.value:.2f}x as quick; {room}."


def _figures(report: TrainingReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    strategy = report.plan.strategy
    degrees = {name: getattr(strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    return {
        "step_time_s": report.step_time_s,
        "mfu": report.mfu,
        "peak_memory_bytes": report.peak_memory_bytes.value,
        "cost_usd": report.cost_usd,
        "degrees": degrees,
        "settings": dict(report.plan.engine.settings),
        "techniques": list(strategy.techniques),
    }
