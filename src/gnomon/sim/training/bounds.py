"""How long a pipeline takes at least, for many plans at once.

No pipeline ends before any path through what its tasks wait for. A bound is the longest of a few paths whose
lengths have a closed form (`paths.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gnomon.sim.training.paths import gpipe_s, interleaved_s, one_f_one_b_s
from gnomon.sim.training.pipelines import Pipelines, Terms
from gnomon.spec.training import SCHEDULES
from gnomon.spec.workload import Floats

__all__ = ["Pipelines", "pipeline_bound_s"]

LONGEST: dict[str, Callable[[Terms], Floats]] = {
    "gpipe": gpipe_s,
    "1f1b": one_f_one_b_s,
    "interleaved": interleaved_s,
}
BLOCK = 4096
"""Plans worked out at a time: few enough for a core's cache."""
ROUNDING = 1 - 1e-11
"""A timeline adds its seconds one by one, and may end a little below a sum in closed form."""


def pipeline_bound_s(plans: Pipelines) -> Floats:
    """Seconds to the last backward, never more than `Timeline.pipeline_s`, in the common shape of the fields.

    Exact for gpipe. For 1f1b and interleaved it is exact but for rare plans while sends are shorter than tasks,
    and the work beyond the common chunk is a few chunks' at the last and a fraction of one at the first.
    """
    columns = plans.columns()
    shape = columns["schedule"].shape
    flat = {name: column.ravel() for name, column in columns.items()}
    seconds = np.empty(flat["schedule"].size)
    for code, name in enumerate(SCHEDULES):
        rows = np.flatnonzero(flat["schedule"] == code)
        for at in range(0, rows.size, BLOCK):
            block = rows[at : at + BLOCK]
            seconds[block] = LONGEST[name](Terms.of(flat, block))
    return (seconds * ROUNDING).reshape(shape)
