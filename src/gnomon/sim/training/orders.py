"""Orders of tasks that several schedules share."""

from __future__ import annotations

from gnomon.sim.training.base import Task


def split_order(micros: int, warm_ups: int, later: int) -> list[Task]:
    """One chunk with split backwards: `warm_ups` forwards; then a forward and a backward by input alternately, and
    after each the backward by weight of the micro-batch `later` before it."""
    ahead = min(warm_ups, micros)
    found = [Task("F", 0, micro) for micro in range(ahead)]
    for micro in range(micros):
        if micro + ahead < micros:
            found.append(Task("F", 0, micro + ahead))
        found.append(Task("I", 0, micro))
        if micro >= later:
            found.append(Task("W", 0, micro - later))
    return [*found, *(Task("W", 0, micro) for micro in range(max(0, micros - later), micros))]
