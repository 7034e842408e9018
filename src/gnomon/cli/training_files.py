"""Files of `gnomon simulate train`: the timeline and the memory of every pipeline rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.cli.pages import outputs
from gnomon.errors import InputError

if TYPE_CHECKING:
    from gnomon.spec.answers import TrainingReport

TRACE, MEMORY = "--trace-out", "--memory-out"
DRAWN = (".svg", ".png")
TRACE_ROWS = 100_000
"""Moments of memory in a trace, beside its slices."""
MOST_PASSES = 500_000
"""Of all ranks in a trace: viewers take a few hundred megabytes."""


def checked(read: Mapping[str, str], named: Mapping[str, str | None]) -> dict[str, Path]:
    """The paths by flag. Raises at once for what could not be written, or drawn."""
    paths = outputs(named, dict(read))
    kind = paths[MEMORY].suffix.lower() if MEMORY in paths else ".csv"
    if kind in DRAWN:
        from gnomon.report.memory_plot import require_matplotlib

        require_matplotlib()
    elif kind != ".csv":
        raise InputError(f"'{named[MEMORY]}' does not end in .csv, .svg or .png", where=MEMORY)
    return paths


def files(report: TrainingReport, paths: dict[str, Path]) -> list[Callable[[], None]]:
    """What writes each of the files. Raises for a step that is too long for a trace."""
    writers = {TRACE: _write_trace, MEMORY: _write_memory}
    if TRACE in paths:
        passes = sum(map(len, report.step.timeline.orders))
        if passes > MOST_PASSES:
            hint = "Take a larger --micro-batch or a smaller --global-batch for it."
            raise InputError(f"a step of {passes:,} passes is too long for a trace", where=TRACE, hint=hint)
    return [partial(write, report, paths[flag]) for flag, write in writers.items() if flag in paths]


def _write_trace(report: TrainingReport, path: Path) -> None:
    from gnomon.paths import written
    from gnomon.planning.training.memory import memory_over_time
    from gnomon.report.training_trace import write_trace

    step = report.step
    each = TRACE_ROWS // report.plan.strategy.pp
    with written(path) as file:
        write_trace(step.timeline, lambda rank: memory_over_time(step, rank, each), file, report.title, step.waits_s)


def _write_memory(report: TrainingReport, path: Path) -> None:
    from gnomon.paths import written
    from gnomon.planning.training.memory import memory_over_time

    step = report.step
    ranks = (memory_over_time(step, rank) for rank in range(report.plan.strategy.pp))
    with written(path) as file:
        if path.suffix.lower() in DRAWN:
            from gnomon.report.memory_plot import draw

            file.buffer.write(draw(ranks, report.usable_memory_bytes, report.title, path.suffix[1:].lower()))
        else:
            from gnomon.report.training_trace import write_memory

            write_memory(ranks, file)
