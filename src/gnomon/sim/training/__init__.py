"""One training step on a pipeline: schedules as task lists, and when each task runs.

orders = schedule("1f1b").tasks(pp, vp, micros)
timeline(orders, times).step_s

Knows seconds, ranks and micro-batches; never a network or a chip.
"""

from __future__ import annotations

from gnomon.errors import unknown_name
from gnomon.sim.training.base import Orders, Schedule, Task
from gnomon.sim.training.interleaved import Interleaved
from gnomon.sim.training.one_f_one_b import GPipe, OneFOneB
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
    "regular",
    "schedule",
    "timeline",
    "validate",
    "without_communication",
]

_KNOWN: tuple[Schedule, ...] = (GPipe(), OneFOneB(), Interleaved())
SCHEDULES: dict[str, Schedule] = {known.name: known for known in _KNOWN}


def schedule(name: str) -> Schedule:
    if name not in SCHEDULES:
        raise unknown_name("pipeline schedule", name, SCHEDULES)
    return SCHEDULES[name]
