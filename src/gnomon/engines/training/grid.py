"""Plans side by side: one array a choice. A single plan is a grid of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gnomon.spec import Recipe, Strategy
from gnomon.spec.training import RECOMPUTE, SCHEDULES

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Degrees, micro-batches in sequences, and codes: places in `SCHEDULES` and `RECOMPUTE`."""

    tp: Ints
    pp: Ints
    vp: Ints
    dp: Ints
    micro_batch: Ints
    zero: Ints
    recompute: Ints
    schedule: Ints
    sequence_parallel: Ints

    @property
    def size(self) -> int:
        return int(self.tp.size)

    @property
    def ranks(self) -> Ints:
        return self.tp * self.pp * self.dp

    @classmethod
    def of(cls, strategy: Strategy, recipe: Recipe) -> Grid:
        values = {name: getattr(strategy, name) for name in ("tp", "pp", "vp", "dp")}
        values |= {"micro_batch": recipe.micro_batch, "zero": recipe.zero}
        # Without a pipeline micro-batches go forward and back one by one, whatever the schedule.
        schedule = recipe.schedule if strategy.pp > 1 else "1f1b"
        values |= {"recompute": RECOMPUTE.index(recipe.recompute), "schedule": SCHEDULES.index(schedule)}
        values |= {"sequence_parallel": int(recipe.sequence_parallel and strategy.tp > 1)}
        return cls(**{name: np.array([value], np.int64) for name, value in values.items()})

    def pick(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Grid:
        return Grid(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def strategy(self, row: int) -> Strategy:
        tp, pp, vp, dp = (int(column[row]) for column in (self.tp, self.pp, self.vp, self.dp))
        return Strategy(tp=tp, pp=pp, vp=vp, dp=dp)

    def recipe(self, row: int, optimizer: str) -> Recipe:
        return Recipe(
            micro_batch=int(self.micro_batch[row]),
            schedule=SCHEDULES[int(self.schedule[row])],
            recompute=RECOMPUTE[int(self.recompute[row])],
            zero=int(self.zero[row]),
            optimizer=optimizer,
            sequence_parallel=bool(self.sequence_parallel[row]),
        )

    def groups(self, names: Sequence[str]) -> list[tuple[tuple[int, ...], Ints]]:
        """Rows that agree in some choices, with what they agree on."""
        columns = [getattr(self, name) for name in names]
        spans = [int(column.max(initial=0)) + 1 for column in columns]
        key = np.ravel_multi_index(tuple(columns), tuple(spans))
        found, place = np.unique(key, return_inverse=True)
        order = np.argsort(place.ravel(), kind="stable")
        edges = np.searchsorted(place.ravel()[order], np.arange(found.size + 1))
        values = np.stack(np.unravel_index(found, tuple(spans)), axis=1).tolist()
        return [(tuple(value), order[edges[i] : edges[i + 1]]) for i, value in enumerate(values)]
