"""What drawn steps take at least, for many plans at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gnomon.engines.training import StepTable
from gnomon.engines.training.batches import RowBatches
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.grid import Ints
from gnomon.engines.training.priced import NodeSeconds, node_seconds
from gnomon.planning.training.drawn import between, in_step, work_of_ranks
from gnomon.sim.training import Schedule
from gnomon.sim.training.bounds import ROUNDING
from gnomon.sim.training.placement import LOOP, PLACEMENTS
from gnomon.spec.loads.micro_batches import MicroBatches, places
from gnomon.spec.workload import Floats


class _Key(NamedTuple):
    """Plans whose ranks have the same micro-batches."""

    cp: int
    entry: int
    dp: int
    together: int


def drawn_bounds_s(case: TrainingCase, plans: StepTable) -> Floats:
    """A lower bound on the passes of the mean drawn step of every plan: its mean stage takes no longer than its busiest
    one, and no rank ends before its own micro-batches have run. Not of schedules that hide one pass in another."""
    found = np.zeros(plans.grid.size)
    for key, drawn, some in _by_micro_batches(case, plans):
        shares = _shares(drawn, key.dp, key.together)
        seconds = np.stack([one.both_s[one.entry == key.entry] for _, one in some], axis=1)
        slowest = (shares @ seconds).reshape(drawn.steps, key.dp // key.together, -1).max(axis=1).mean(axis=0)
        for (mine, _), mean in zip(some, slowest.tolist(), strict=True):
            found[mine] = mean * ROUNDING / plans.grid.pp[mine]
    return np.where(_hides(plans), 0.0, found)


def path_bounds_s(case: TrainingCase, plans: StepTable) -> Floats:
    """A closer one, of pipelines down whose ranks micro-batches go in order: the longer of two paths. One are all
    forwards of the first chunk before a micro-batch, its way through the network and back, and all backwards of the
    first chunk after it. The other are the ways of micro-batches so far apart that one cannot begin before the other
    has come back."""
    grid, found = plans.grid, np.zeros(plans.grid.size)
    loops = (grid.placement == PLACEMENTS.index(LOOP)) & ~_hides(plans)
    for key, drawn, some in _by_micro_batches(case, plans):
        right, share = places(drawn.nodes.work, work_of_ranks(drawn, key.dp, key.together))
        for mine, one in some:
            there, back, layer_there, layer_back = (
                between(column[one.entry == key.entry], right, share)
                for column in (one.forward_s, one.backward_s, one.layer_forward_s, one.layer_backward_s)
            )
            before = np.cumsum(layer_there, axis=2) - layer_there
            after = layer_back.sum(axis=2, keepdims=True) - np.cumsum(layer_back, axis=2)
            pipes = np.stack([grid.pp[mine], grid.vp[mine], grid.schedule[mine]])
            for pipe in np.unique(pipes, axis=1).T:
                rows = mine[(pipes == pipe[:, None]).all(axis=0)]
                pp, vp = pipe[:2].tolist()
                count = case.model.layers // (pp * vp)
                way = (count * (before + after) + there + back).max(axis=2)
                apart = _between_returns(plans.grid.schedule_of(int(rows[0])), pp, vp, there.shape[2])
                longest = np.maximum(way, _spaced(there + back, apart))
                found[rows] = longest.max(axis=1).mean() * ROUNDING
    return np.where(loops, found, 0.0)


@lru_cache(maxsize=1024)
def _between_returns(chosen: Schedule, pp: int, vp: int, micros: int) -> int:
    """The fewest micro-batches behind one whose first forward always waits for its last backward."""
    begun = returned = most = 0
    for task in chosen.tasks(pp, vp, micros)[0]:
        if task.chunk == 0 and task.kind == "F":
            begun += 1
        elif task.chunk == 0 and task.kind in "BI":
            most, returned = max(most, begun - returned), returned + 1
    return most


def _spaced(seconds: Floats, apart: int) -> Floats:
    """The longest sum over micro-batches that are at least so far apart: [steps, ranks]."""
    best = [np.zeros(seconds.shape[:2])]
    for micro in range(seconds.shape[2]):
        best.append(np.maximum(best[-1], best[max(micro + 1 - apart, 0)] + seconds[:, :, micro]))
    return best[-1]


def _hides(plans: StepTable) -> NDArray[np.bool_]:
    return np.asarray(plans.grid.by_schedule(lambda one, rows: one.overlaps) > 0)


def _by_micro_batches(
    case: TrainingCase, plans: StepTable
) -> Iterator[tuple[_Key, MicroBatches, list[tuple[Ints, NodeSeconds]]]]:
    """Plans by the micro-batches of their ranks, with what these take."""
    grid, rows = plans.grid, RowBatches(case.model, case.load, plans.grid)
    together = in_step(grid, case.traits)
    ways: dict[_Key, list[tuple[Ints, NodeSeconds]]] = defaultdict(list)
    for one in node_seconds(case.model, case.load, grid, case.machine, case.traits, case.dtype):
        columns = np.stack([rows.place[one.rows], grid.dp[one.rows], together[one.rows]])
        for agreed in np.unique(columns, axis=1).T:
            mine = one.rows[(columns == agreed[:, None]).all(axis=0)]
            ways[_Key(one.cp, *agreed.tolist())].append((mine, one))
    for key, some in ways.items():
        yield key, rows.drawn(key.entry, key.cp), some


def _shares(drawn: MicroBatches, dp: int, together: int) -> Floats:
    """How often each node is in the micro-batches of a rank, of every step and rank: [steps x ranks, nodes]."""
    work = work_of_ranks(drawn, dp, together)
    size, (right, share) = drawn.nodes.work.size, places(drawn.nodes.work, work)
    begin = (np.arange(work.shape[0] * work.shape[1]) * size).reshape(*work.shape[:2], 1)
    above = np.bincount((begin + right).ravel(), share.ravel(), minlength=begin.size * size)
    below = np.bincount((begin + np.maximum(right - 1, 0)).ravel(), (1 - share).ravel(), minlength=begin.size * size)
    return np.asarray((above + below).reshape(-1, size), float)
