"""How long a pipeline takes at least, for many plans at once.

No pipeline ends before any path through what its tasks wait for. A bound is the longest of a few paths whose
lengths have a closed form: they differ in where they stay while the micro-batches pass, and in how they get there
and back. Which paths are longest in practice was found by following them; that each exists at every size is what
makes the bound hold, whatever the seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from gnomon.errors import InputError
from gnomon.sim.training import schedule as find_schedule
from gnomon.sim.training.base import Ints
from gnomon.sim.training.paths import Terms, gpipe_s, interleaved_s, one_f_one_b_s
from gnomon.spec.training import SCHEDULES
from gnomon.spec.workload import Floats

LONGEST: dict[str, Callable[[Terms], Floats]] = {
    "gpipe": gpipe_s,
    "1f1b": one_f_one_b_s,
    "interleaved": interleaved_s,
}
BLOCK = 4096
"""Plans worked out at a time: few enough for a core's cache."""
ROUNDING = 1 - 1e-11
"""A timeline adds its seconds one by one, and may end a little below a sum in closed form."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipelines:
    """Pipelines whose chunks are equal but for the first and the last. A field is an array, or one number for all."""

    schedule: Ints | int
    """Its place in `gnomon.spec.training.SCHEDULES`."""
    pp: Ints | int
    vp: Ints | int
    micros: Ints | int
    forward_s: Floats | float
    """One chunk that is neither the first nor the last."""
    backward_s: Floats | float
    first_forward_s: Floats | float = 0.0
    """What the first chunk of the network takes beyond that; embeddings, say."""
    first_backward_s: Floats | float = 0.0
    last_forward_s: Floats | float = 0.0
    """What the last takes beyond it; head and loss, say."""
    last_backward_s: Floats | float = 0.0
    forward_send_s: Floats | float = 0.0
    """As in `StepTimes`."""
    backward_send_s: Floats | float = 0.0
    blocking: np.ndarray | bool = False


def pipeline_bound_s(plans: Pipelines) -> Floats:
    """Seconds to the last backward, never more than `Timeline.pipeline_s`, in the fields' common shape.

    Exact for gpipe; for 1f1b and interleaved exact but for rare plans, where sends are short beside the tasks.
    Times are zero or more; sizes that a schedule does not exist for are refused.
    """
    columns = np.broadcast_arrays(*(np.asarray(getattr(plans, field.name)) for field in fields(plans)))
    shape, flat = columns[0].shape, [column.ravel() for column in columns]
    _check(*flat[:4])
    seconds = np.empty(flat[0].size)
    for code, name in enumerate(SCHEDULES):
        rows = np.flatnonzero(flat[0] == code)
        for at in range(0, rows.size, BLOCK):
            block = rows[at : at + BLOCK]
            seconds[block] = LONGEST[name](Terms.of(*(column[block] for column in flat[1:])))
    return (seconds * ROUNDING).reshape(shape)


def _check(schedule: Ints, pp: Ints, vp: Ints, micros: Ints) -> None:
    known = (schedule >= 0) & (schedule < len(SCHEDULES))
    if not known.all():
        code = schedule[int(np.argmin(known))]
        raise InputError(f"there is no schedule {code}", where="schedule", hint=f"0 to {len(SCHEDULES) - 1} are known.")
    several = schedule == SCHEDULES.index("interleaved")
    possible = np.minimum(np.minimum(pp, vp), micros) >= 1
    possible &= np.where(several, (pp > 1) & (vp > 1) & (micros % np.maximum(pp, 1) == 0), vp == 1)
    if not possible.all():
        row = int(np.argmin(possible))
        find_schedule(SCHEDULES[schedule[row]]).check(int(pp[row]), int(vp[row]), int(micros[row]))
