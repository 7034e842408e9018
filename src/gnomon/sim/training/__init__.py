"""One training step on a pipeline: schedules as task lists, and when each task runs.

orders = schedule("1f1b").tasks(pp, vp, micros)
timeline(orders, times).step_s

Knows seconds, ranks and micro-batches; never a network or a chip. A schedule is a file in `schedules/`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from gnomon.errors import unknown_name
from gnomon.sim.training import schedules
from gnomon.sim.training.base import Orders, Schedule, Task
from gnomon.sim.training.timeline import Span, Timeline, timeline
from gnomon.sim.training.times import StepTimes, regular, without_communication
from gnomon.sim.training.validate import validate

__all__ = [
    "SCHEDULES",
    "Orders",
    "Schedule",
    "Span",
    "StepTimes",
    "Task",
    "Timeline",
    "code_of",
    "names",
    "regular",
    "schedule",
    "timeline",
    "usual_schedule",
    "validate",
    "without_communication",
]


def _found() -> dict[str, Schedule]:
    """Every schedule there is a file of."""
    modules = (import_module(f"{schedules.__name__}.{one.name}") for one in iter_modules(schedules.__path__))
    known: list[Schedule] = sorted((module.SCHEDULE for module in modules), key=lambda one: (one.place, one.name))
    return {one.name: one for one in known}


SCHEDULES: dict[str, Schedule] = _found()
"""By name. Columns of plans have a schedule's place here in the place of its name."""


def schedule(name: str, where: str = "") -> Schedule:
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES, where=where)
    return SCHEDULES[name]


def names() -> tuple[str, ...]:
    return tuple(SCHEDULES)


def code_of(name: str) -> int:
    """The place of a schedule in columns of plans."""
    return names().index(name)


def usual_schedule(vp: int) -> Schedule:
    """What runs so many model chunks per rank where no schedule is named."""
    return next(one for one in SCHEDULES.values() if one.usual and one.takes_chunks(vp))
