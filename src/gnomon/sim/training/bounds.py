"""How long a pipeline takes at least, for many plans at once.

No pipeline ends before any path through what its tasks wait for. A bound is the longest of a few paths whose lengths
have a closed form. Which of them are the longest in practice was found by following longest paths; that they exist is
checked against timelines of all kinds of sizes and times.
"""

from __future__ import annotations

import numpy as np

from gnomon.sim.training import SCHEDULES
from gnomon.sim.training.base import Schedule
from gnomon.sim.training.pipelines import Pipelines, Terms, longest
from gnomon.sim.training.placement import V
from gnomon.spec.workload import Floats

__all__ = ["Pipelines", "any_schedule_s", "pipeline_bound_s", "split_s"]

BLOCK = 4096
"""Plans worked out at a time: few enough for a core's cache."""
ROUNDING = 1 - 1e-11
"""A timeline adds its seconds one by one, and may end a little below a sum in closed form."""


def pipeline_bound_s(plans: Pipelines) -> Floats:
    """Seconds to the last task, never more than `Timeline.pipeline_s`, in the common shape of the fields.

    Exact for GPipe. For 1F1B, interleaved or not, it is exact but for rare plans while sends are shorter than tasks,
    and the work beyond the common chunk is a few chunks' at the last and a fraction of one at the first.
    """
    columns = plans.columns()
    shape = columns["schedule"].shape
    flat = {name: column.ravel() for name, column in columns.items()}
    seconds = np.empty(flat["schedule"].size)
    for code, schedule in enumerate(SCHEDULES.values()):
        rows = np.flatnonzero(flat["schedule"] == code)
        for at in range(0, rows.size, BLOCK):
            block = rows[at : at + BLOCK]
            seconds[block] = schedule.bound_s(Terms.of(flat, block))
    return (seconds * ROUNDING).reshape(shape)


def any_schedule_s(schedule: Schedule, t: Terms) -> Floats:
    """The default of `Schedule.bound_s`: the way of one micro-batch to the busiest rank, and its work."""
    several, copies = t.p > 1, schedule.placement.copies
    work = t.m * t.v * (t.f + t.b - t.overlap)
    own_first, own_last = t.m / copies * t.first, t.m / copies * t.last
    at_first = work + own_first
    turn = schedule.placement.has_last(np.maximum(t.p, 1), 0)
    at_first = at_first + np.where(turn, own_last, 0.0)
    # With two copies, ranks in the middle are reached last.
    deepest = t.p - 1 if copies == 1 else t.p / copies - 1
    there = t.first_f + deepest * (t.f + t.send_f)
    back = 0.0 if schedule.splits_backward else t.first_b + deepest * (t.b + t.send_b)
    ends_there = several & (copies == 1) & ~turn
    # Where a V turns, nothing is sent between the two chunks of a rank.
    turned = t.m * t.blocked * (schedule.placement.name == V.name)
    at_deepest = work + there + back + np.where(ends_there, own_last, 0.0) - turned
    before = np.where(ends_there & (t.p > 2), at_deepest - own_last - t.f - t.send_f, 0.0)
    before = before - (0.0 if schedule.splits_backward else np.where(before > 0, t.b + t.send_b, 0.0))
    return longest(at_first, np.where(several, at_deepest, 0.0), before)


def split_s(t: Terms, warm_ups: Floats, late_first: Floats, late_last: Floats) -> Floats:
    """For one chunk per rank and split backwards. The first rank runs `warm_ups` forwards before its first backward by
    input; after the last one, the first rank has `late_first` backwards by weight left and the last rank `late_last`.
    """
    alone = t.p == 1
    at_first = t.m * (t.f + t.b + t.first + np.where(alone, t.last, 0.0))
    way = (t.p - 1) * (t.i + t.sends) + t.last - t.last_w
    way = np.where(alone, 0.0, way)
    down = t.first_f + (t.p - 1) * t.f
    # To the last rank and back, and what the first has not done by then.
    back_at_first = down + t.f + way + at_first - warm_ups * (t.f + t.first_f)
    # To the last rank, nearly all it has to do, and back.
    at_last = down + np.where(alone, 0.0, (t.p - 1) * t.send_f) + t.m * (t.f + t.b + t.last)
    up = (t.p - 1) * (t.i + t.send_b) + t.first_b - t.first_w + late_first * (t.w + t.first_w)
    there_and_back = at_last - late_last * (t.w + t.last_w) + up
    return longest(
        at_first, np.where(alone, 0.0, back_at_first), np.where(alone, 0.0, longest(at_last, there_and_back))
    )
