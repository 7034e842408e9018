"""One training job on two kinds of chips: data-parallel replicas of each, and sequences for each as its speed has it.

All replicas are cut up alike, since gradients are summed over ranks with equal parts of the network. A replica is of
one kind of chip. The step is over when the slower kind is; the gradients of all replicas are summed over each kind's
own network, so that they take as long as over the slower one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.engines.training import Grid, StepTable, figures
from gnomon.engines.training.grid import COLUMNS, Ints
from gnomon.errors import InputError
from gnomon.planning.training.search import Search
from gnomon.planning.training.step import plain_memory, plain_peaks, step_bound_s, usable_bytes
from gnomon.planning.training.times import step_timeline
from gnomon.search.quickest import Quickest, quickest
from gnomon.spec.workload import Floats

WHERE = "--cluster"


class KindShares(NamedTuple):
    """How many micro-batches each replica of the two kinds takes."""

    first: int
    second: int


@dataclass(frozen=True)
class Mixture:
    """All plans that have replicas of both kinds. `searches` has the plans of each kind alone."""

    searches: tuple[Search, Search]

    @property
    def batch(self) -> int:
        return self.searches[0].load.global_batch

    @cached_property
    def grid(self) -> Grid:
        """Ways to cut a replica up that either kind takes alone, with as many replicas as the chips of both hold."""
        names = [name for name in COLUMNS if name != "dp"]
        listed = [np.stack([getattr(one.grid, name) for name in names]) for one in self.searches]
        every = np.unique(np.concatenate(listed, axis=1), axis=1)
        columns: dict[str, Any] = dict(zip(names, every, strict=True))
        found = Grid(**columns, dp=np.ones_like(every[0]))
        found = found.pick(np.flatnonzero(self._able(found)))
        found = found.having(dp=sum(self._replicas(found)))
        return found.pick(np.flatnonzero(self._shared(found)[-1]))

    def _able(self, grid: Grid) -> NDArray[np.bool_]:
        """Plans with replicas of both kinds, whose groups of experts are of one kind each."""
        first, second = self._replicas(grid)
        span = np.maximum(1, grid.ep * grid.expert_tp // (grid.tp * grid.cp))
        alone = (np.minimum(first, second) > 0) & (first % span == 0) & (second % span == 0)
        shared = (first + second) * grid.cp * grid.tp % np.maximum(grid.ep * grid.expert_tp, 1) == 0
        return np.asarray(alone & shared & (grid.dp_shard == 0))

    def _replicas(self, grid: Grid) -> tuple[Ints, Ints]:
        each = grid.tp * grid.cp * grid.pp
        first, second = (one.pool.count // each for one in self.searches)
        return first, second

    @cached_property
    def tables(self) -> tuple[StepTable, StepTable]:
        """Figures of both kinds, as if all replicas were of it, but for how many micro-batches they take."""
        grid = self.grid
        most = int((grid.dp * grid.micro_batch).max())
        first, second = (self._table(one, most) for one in self.searches)
        return first, second

    def _table(self, one: Search, most: int) -> StepTable:
        grid = self.grid
        pool = replace(one.pool, count=int(grid.ranks.max()))
        machine = replace(one.case.machine, pool=pool)
        load = replace(one.load, global_batch=most)
        return figures(one.model, load, grid, machine, one.traits, one.optimizer, one.dtype)

    @cached_property
    def ways(self) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        return self._shared(self.grid)

    def _shared(self, grid: Grid) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Of each plan the micro-batches of both kinds at one end, what is added to the first and taken from the second
        at each further way to share them, and how many such ways there are; none where no way adds up."""
        first, second = self._replicas(grid)
        unit = np.asarray(grid.by_schedule(lambda one, rows: one.multiple(grid.pp[rows])), np.int64)
        least = np.asarray(grid.by_schedule(lambda one, rows: one.fewest(grid.pp[rows])), np.int64)
        if self.searches[0].traits.fills_pipelines:
            fill = grid.by_schedule(lambda one, rows: np.array([one.fills(int(pp)) for pp in grid.pp[rows]]))
            least = np.maximum(least, np.asarray(fill, np.int64))
        keys = np.stack([first, second, grid.micro_batch * unit, -(-least // unit)])
        known, place = np.unique(keys, axis=1, return_inverse=True)
        solved = np.array([_solved(self.batch, *one) for one in known.T.tolist()]).T[:, place.ravel()]
        begin, other, up, down, count = solved
        return begin * unit, other * unit, up * unit, down * unit, count

    def micros(self, way: Any) -> tuple[Ints, Ints]:
        begin, other, up, down, _ = self.ways
        return begin + way * up, other - way * down

    def at(self, way: Any, rows: Ints | None = None) -> list[StepTable]:
        """Figures of both kinds where micro-batches are shared so."""
        found = []
        for table, micros in zip(self.tables, self.micros(way), strict=True):
            one = replace(table, micros=micros, buffer_bytes=table.buffer_bytes * micros / table.micros)
            found.append(one if rows is None else one.pick(rows))
        return found

    @cached_property
    def bounds_s(self) -> Floats:
        """Of the best way to share each plan's micro-batches: the more the first kind takes, the longer it takes and
        the shorter the second does, so that the best way is beside the one where their bounds meet."""
        count = self.ways[-1]
        traits = [one.traits for one in self.searches]

        def bounds(way: Ints) -> list[Floats]:
            return [step_bound_s(table, own) for table, own in zip(self.at(way), traits, strict=True)]

        low, high = np.zeros_like(count), count - 1
        while np.any(low < high):
            middle = (low + high) // 2
            first, second = bounds(middle)
            met = first >= second
            low, high = np.where(met, low, np.minimum(middle + 1, high)), np.where(met, middle, high)
        best = np.minimum(np.max(bounds(low), axis=0), np.max(bounds(np.maximum(low - 1, 0)), axis=0))
        return np.where(self._may_fit, best, np.inf)

    @cached_property
    def _may_fit(self) -> NDArray[np.bool_]:
        """Plans that fit where each kind takes the fewest micro-batches: more of them need no less memory."""
        ends = np.zeros_like(self.ways[-1]), self.ways[-1] - 1
        found = np.ones(self.grid.size, bool)
        for kind, way in enumerate(ends):
            one = self.searches[kind]
            found &= self.peaks(kind, self.at(way)[kind]) <= usable_bytes(one.pool, one.traits)
        return found

    def peaks(self, kind: int, table: StepTable) -> Floats:
        """Bytes of the fullest rank of one kind."""
        case, grid = self.searches[kind].case, table.grid
        if table.chunks.uneven:
            return plain_peaks(table, case)
        ranks = np.zeros_like(grid.pp), np.minimum(1, grid.pp - 1), grid.pp - 1
        return np.asarray(np.max([plain_memory(table, case, rank).total for rank in ranks], axis=0))

    def best_way(self, row: int) -> tuple[float, int]:
        """The shortest step of a plan and the way to share that has it, each of few ways timed in full; infinite where
        none fits both kinds."""
        count = int(self.ways[-1][row])
        picked = np.array([row])

        def fits(kind: int, way: int) -> bool:
            one = self.searches[kind]
            table = self.at(way, picked)[kind]
            return bool(self.peaks(kind, table)[0] <= usable_bytes(one.pool, one.traits))

        def seconds(kind: int, way: int) -> float:
            return float(step_timeline(self.at(way, picked)[kind], 0, self.searches[kind].traits).step_s)

        least = _first(count, lambda way: fits(1, way))
        most = _first(count, lambda way: not fits(0, way)) - 1
        if least > most:
            return np.inf, 0
        met = min(
            least + _first(most - least + 1, lambda way: seconds(0, least + way) >= seconds(1, least + way)), most
        )
        near = {max(met - 1, least), met}
        return min((max(seconds(0, way), seconds(1, way)), way) for way in sorted(near))

    def quickest(self, progress: Callable[[int], None] | None = None) -> Quickest | None:
        """The shortest step of all; none where no plan has replicas of both kinds."""
        if not self.grid.size or not np.isfinite(self.bounds_s).any():
            return None
        found = quickest(self.bounds_s, lambda row: self.best_way(row)[0], progress)
        return found if np.isfinite(found.value) else None

    def share(self, row: int) -> KindShares:
        first, second = self.micros(self.best_way(row)[1])
        return KindShares(int(first[row]), int(second[row]))

    def replicas(self, row: int) -> tuple[int, int]:
        first, second = self._replicas(self.grid)
        return int(first[row]), int(second[row])


def _first(count: int, holds: Callable[[int], bool]) -> int:
    """The first of so many places from which on something holds; `count` where it holds at none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _solved(batch: int, first: int, second: int, unit: int, least: int) -> tuple[int, int, int, int, int]:
    """Whole numbers of units for replicas of two kinds, each no fewer than the least, that add up to a batch: those
    with fewest of the first, and by how much the others differ from one to the next."""
    none = (0, 0, 0, 0, 0)
    if batch % unit:
        return none
    units = batch // unit
    common = gcd(first, second)
    up, down = second // common, first // common
    begin = next((n for n in range(least, least + up) if (units - n * first) % second == 0), None)
    if begin is None or units < begin * first + least * second:
        return none
    other = (units - begin * first) // second
    return begin, other, up, down, (other - least) // down + 1


def check_kinds(first: Search, second: Search) -> None:
    """Raise InputError for two kinds of chips that cannot train together."""
    if first.pool.chip.name == second.pool.chip.name:
        raise InputError(f"{first.pool.chip.name} is given twice", where=WHERE, hint="Add the counts up.")
    if first.dtype != second.dtype:
        message = f"{first.pool.chip.name} trains in {first.dtype} and {second.pool.chip.name} in {second.dtype}"
        raise InputError(message, where=WHERE, hint="Give both the same with --dtype.")
    if first.traits.frees_gradients:
        message = f"mixed chips are not planned under {first.engine.title}"
        raise InputError(message, where="--engine", hint="Use megatron.")
