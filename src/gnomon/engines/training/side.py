"""Tasks beside the passes of a step (`gnomon.sim.training.side`) as columns: one row per plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gnomon.engines.training.grid import Grid, Ints
from gnomon.engines.training.stage_costs import StageCosts
from gnomon.sim.training.base import LANES
from gnomon.sim.training.side import ROUNDING, SideTask, SideTasks, passes_accompanied
from gnomon.spec.workload import Floats

__all__ = [
    "SideColumns", "SideGroup", "lanes_bound_s", "part_bytes", "room_bound_s", "side_of_row", "turns_bound_s",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideColumns:
    """One side task of every plan, as `SideTask` has them: seconds and bytes of a layer of each kind (`StageCosts`) for
    one micro-batch."""

    name: str
    layer_s: tuple[Floats, ...]
    layer_bytes: tuple[Floats, ...] = ()
    after: str = ""
    before: str = ""
    follows: bool = False
    shared: Ints | int = 1

    def pick(self, rows: Ints) -> SideColumns:
        seconds, sizes = (tuple(one[rows] for one in each) for each in (self.layer_s, self.layer_bytes))
        return replace(self, layer_s=seconds, layer_bytes=sizes, shared=_picked(self.shared, rows))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideGroup:
    """Side tasks with room of their own on the chip, of every plan, as `SideTasks` has them."""

    tasks: tuple[SideColumns, ...]
    limit_bytes: Floats | float = np.inf
    parts: Ints | int = 1
    apart: Ints | int = 0

    def pick(self, rows: Ints) -> SideGroup:
        columns = {one.name: _picked(getattr(self, one.name), rows) for one in fields(self) if one.name != "tasks"}
        return SideGroup(tasks=tuple(task.pick(rows) for task in self.tasks), **columns)


def _picked(values: Any, rows: Ints) -> Any:
    return values[rows] if np.ndim(values) else values


def _at(values: Any, row: int) -> Any:
    return values[row] if np.ndim(values) else values


def side_of_row(chunks: StageCosts, side: Sequence[SideGroup], row: int) -> tuple[SideTasks, ...]:
    """Those of one plan. Passes are cut into as many parts as the group that asks for most."""
    if not side:
        return ()
    shape = chunks.shape_of(row)
    counts = chunks.stages.counts(shape)
    parts = int(_at(_parts(side), row))

    def of_chunks(layer: Sequence[Floats]) -> Floats | float:
        return np.asarray(counts @ np.array([one[row] for one in layer])) if layer else 0.0

    return tuple(
        SideTasks(
            tasks=tuple(
                SideTask(
                    name=one.name, seconds=of_chunks(one.layer_s), bytes=of_chunks(one.layer_bytes), after=one.after,
                    before=one.before, follows=one.follows, shared=int(_at(one.shared, row)),
                )
                for one in group.tasks
            ),
            limit_bytes=float(_at(group.limit_bytes, row)),
            parts=parts,
            apart=int(_at(_apart(group, parts), row)),
        )
        for group in side
    )  # fmt: skip


def _parts(side: Sequence[SideGroup]) -> Any:
    """Of every plan, or of all."""
    return np.maximum.reduce([np.asarray(group.parts) for group in side])


def _apart(group: SideGroup, parts: Any) -> Any:
    """In parts as passes are cut, at least as far."""
    return -(-np.asarray(group.apart) * parts // np.asarray(group.parts))


def part_bytes(chunks: StageCosts, layer_bytes: Sequence[Floats], parts: Ints | int = 1) -> Floats:
    """Bytes of the largest part of a pass, of every plan: the room of side tasks without which none goes on; schedules
    that split backwards need more."""
    most = np.zeros(chunks.grid.size)
    for shape, rows in chunks.groups:
        counts = chunks.stages.counts(shape).reshape(-1, len(layer_bytes))
        each = np.stack([one[rows] for one in layer_bytes])
        most[rows] = (counts @ each).max(axis=0)
    return most / parts


def lanes_bound_s(grid: Grid, micros: Ints, chunks: StageCosts, side: Sequence[SideGroup]) -> Floats:
    """A lower bound on the time until the optimizer may start: all the work of the busiest lane of the first rank, or
    of the last, with that of the ranks that have it together."""
    longest = np.zeros(grid.size)
    if not side:
        return longest
    parts = np.broadcast_to(_parts(side), grid.size)
    for last in (False, True):
        lanes: dict[str, Floats] = {}
        for group in side:
            apart = np.broadcast_to(_apart(group, parts), grid.size)
            for one in group.tasks:
                shared = np.broadcast_to(one.shared, grid.size)
                work = _work_s(grid, chunks, one, np.stack([grid.schedule, micros, parts, apart, shared]), last)
                lanes[LANES[one.name]] = lanes.get(LANES[one.name], 0.0) + work
        longest = np.maximum(longest, np.max(list(lanes.values()), axis=0))
    return longest


def _work_s(grid: Grid, chunks: StageCosts, one: SideColumns, choices: Ints, last: bool) -> Floats:
    """Seconds of a side task on the ranks of one lane. Plans that agree in their choices have the same passes."""
    found = np.zeros(grid.size)
    for shape, rows in chunks.groups:
        counts = chunks.stages.counts(shape)
        alike, place = np.unique(choices[:, rows], axis=1, return_inverse=True)
        for number, (code, micros, parts, apart, shared) in enumerate(alike.T.tolist()):
            mine, chosen = rows[place.ravel() == number], grid.schedule_of(int(rows[place.ravel() == number][0]))
            assert code == grid.schedule[mine[0]]
            first = (shape.pp - 1) // shared * shared if last else 0
            layers = np.zeros(counts.shape[2])
            for rank in range(first, min(first + shared, shape.pp)):
                passes = passes_accompanied(chosen, (shape.pp, shape.vp, micros), rank, parts, apart)
                layers += passes @ counts[rank] / parts
            found[mine] = sum(n * each[mine] for n, each in zip(layers.tolist(), one.layer_s, strict=True))
    return found


def room_bound_s(grid: Grid, micros: Ints, chunks: StageCosts, side: Sequence[SideGroup]) -> Floats:
    """A lower bound from the room on the first rank, which parts of passes get in their order: a pass has it when the
    copies of the one before have ended, but for the parts there is room for."""
    found = np.zeros(grid.size)
    if not side:
        return found
    parts, passes = np.broadcast_to(_parts(side), grid.size), micros / grid.stage_copies
    for shape, rows in chunks.groups:
        counts = chunks.stages.counts(shape)[0]
        for group in side:
            seconds, size = np.zeros((counts.shape[0], rows.size)), {"F": 0.0, "B": 0.0}
            for one in group.tasks:
                seconds += counts @ np.stack([each[rows] for each in one.layer_s])
                if one.layer_bytes:
                    layer = counts @ np.stack([each[rows] for each in one.layer_bytes])
                    size[one.after or one.before] += layer / parts[rows]
            least = np.min(np.maximum(size["F"], size["B"]), axis=0)
            limit = np.broadcast_to(group.limit_bytes, grid.size)[rows]
            room = np.floor(np.divide(limit, least, out=np.full(rows.size, np.inf), where=least > 0) * (1 + ROUNDING))
            apart = np.broadcast_to(_apart(group, parts), grid.size)[rows]
            behind = np.maximum(parts[rows] - apart + 1 - room, 0.0) / parts[rows]
            found[rows] = np.maximum(found[rows], passes[rows] * behind * seconds.sum(axis=0))
    return found


def turns_bound_s(
    grid: Grid, micros: Ints, chunks: StageCosts, side: Sequence[SideGroup], passes_s: tuple[Floats, Floats]
) -> Floats:
    """A lower bound for one rank alone, whose micro-batches go forward and back one by one, of seconds of a forward and
    of a backward pass; 0 for pipelines. But for the room there is, copies of a pass end before its last part starts,
    and copies back begin after what they follow."""
    found = np.zeros(grid.size)
    alone = np.flatnonzero((grid.pp == 1) & (grid.vp == 1))
    if not side or not alone.size:
        return found
    parts = np.broadcast_to(_parts(side), grid.size)
    counts = [count[alone] for count in chunks.on_rank(0)]

    def total(layer: Sequence[Floats]) -> Floats:
        return np.asarray(sum((n * one[alone] for n, one in zip(counts, layer, strict=True)), np.zeros(alone.size)))

    forward, backward = (seconds[alone] for seconds in passes_s)
    for group in side:
        of_pass = {"F": np.zeros((2, alone.size)), "B": np.zeros((2, alone.size))}
        for one in group.tasks:
            size = total(one.layer_bytes) if one.layer_bytes else np.zeros(alone.size)
            of_pass[one.after or one.before] += np.stack([total(one.layer_s), size])
        cut = parts[alone]
        size = np.maximum(of_pass["F"][1], of_pass["B"][1]) / cut
        limit = np.broadcast_to(group.limit_bytes, grid.size)[alone]
        room = np.floor(np.divide(limit, size, out=np.full(alone.size, np.inf), where=size > 0) * (1 + ROUNDING))
        apart = np.broadcast_to(_apart(group, parts), grid.size)[alone]
        moved = np.maximum(cut - -(-apart // 2), 0)
        behind = np.maximum(moved - room, 0.0)
        there = behind * of_pass["F"][0] / cut
        follows = any(one.follows for one in group.tasks)
        back = (moved if follows else behind) * of_pass["B"][0] / cut
        begun = np.maximum(forward * np.maximum(moved - 1, 0) / cut, there)
        cycle = np.maximum(np.maximum(forward, there) + backward, begun + back)
        found[alone] = np.maximum(found[alone], micros[alone] * cycle)
    return found
