"""Many plans as columns: one array per choice. A single plan is a grid of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.sim.training import SCHEDULES, Schedule, code_of, names, usual_schedule
from gnomon.sim.training.placement import PLACEMENTS
from gnomon.spec import Recipe, Strategy
from gnomon.spec.recompute import code_of as recompute_code
from gnomon.spec.recompute import layered, name_of
from gnomon.spec.training import CP_COMM_NAMES, DISPATCHES, SELDOM

Ints = NDArray[np.int64]
DEGREES = ("tp", "pp", "vp", "dp", "cp", "ep")
CODES: dict[str, Callable[[str], int]] = {
    "schedule": code_of, "recompute": recompute_code, "cp_comm": CP_COMM_NAMES.index
}  # fmt: skip
"""What columns hold of choices that have names."""
NAMED: dict[str, Callable[[int], str]] = {
    "schedule": names().__getitem__, "recompute": name_of, "cp_comm": CP_COMM_NAMES.__getitem__
}  # fmt: skip
"""The names of what they hold."""
SELDOM_CHOSEN = (
    "dp_shard", "hpz", "tp_overlap", "cp_a2a", "dispatch", "capacity_factor", "pad_to_capacity", "imbalance",
    "ep_overlap", "cuda_graphs", "fp8_param_gather",
)  # fmt: skip
"""Columns of settings of `spec.training.SELDOM`, as `encoded` has them."""
PARTS = 1_000_000
"""Of a factor, in which a column counts it."""
CUT = ("tp", "sequence_parallel", "cp", "cp_comm", "ep", "expert_tp", "tp_overlap", "cp_a2a", "dispatch",
       "capacity_factor", "pad_to_capacity", "imbalance", "cuda_graphs")  # fmt: skip
"""Columns that say what of a layer a rank runs."""


def encoded(name: str, value: Any) -> int:
    """A setting of `SELDOM_CHOSEN` as its column holds it."""
    usual = SELDOM[name]
    if isinstance(usual, str):
        return DISPATCHES.index(value)
    return round(value * PARTS) if isinstance(usual, float) else int(value)


def decoded(name: str, code: int) -> Any:
    """The setting that a column holds."""
    usual = SELDOM[name]
    if isinstance(usual, str):
        return DISPATCHES[code]
    return code / PARTS if isinstance(usual, float) else type(usual)(code)


def _left_out() -> Ints:
    """A column that leaves a setting alone in all plans."""
    return np.zeros(0, np.int64)


def picked(column: NDArray[Any], rows: NDArray[np.int64] | NDArray[np.bool_]) -> NDArray[Any]:
    """Some rows of a column. One value for all rows takes no memory, and goes on to take none."""
    if column.size and column.strides == (0,):
        taken = int(np.count_nonzero(rows)) if rows.dtype == bool else rows.size
        return np.broadcast_to(column[:1], (taken,))
    return np.asarray(column[rows])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grid:
    """Degrees, micro-batches in sequences, and codes: of ways to recompute, and places among the
    schedules and in `CP_COMM_NAMES`."""

    tp: Ints
    pp: Ints
    vp: Ints
    dp: Ints
    micro_batch: Ints
    zero: Ints
    recompute: Ints
    schedule: Ints
    sequence_parallel: Ints
    cp: Ints
    cp_comm: Ints
    ep: Ints
    expert_tp: Ints
    """Ranks that each expert is cut over, as it is: never 0."""
    dp_shard: Ints = field(default_factory=_left_out)
    """Data-parallel ranks that share states out; 0 for all. Of all plans where a grid leaves it out, and so are the
    next ones."""
    hpz: Ints = field(default_factory=_left_out)
    tp_overlap: Ints = field(default_factory=_left_out)
    cp_a2a: Ints = field(default_factory=_left_out)
    dispatch: Ints = field(default_factory=_left_out)
    capacity_factor: Ints = field(default_factory=_left_out)
    pad_to_capacity: Ints = field(default_factory=_left_out)
    imbalance: Ints = field(default_factory=_left_out)
    ep_overlap: Ints = field(default_factory=_left_out)
    cuda_graphs: Ints = field(default_factory=_left_out)
    fp8_param_gather: Ints = field(default_factory=_left_out)
    stage_layers: tuple[int, ...] = ()
    """Layers of every stage where they are given, of all rows; empty where they are as equal as can be."""

    def __post_init__(self) -> None:
        for name in SELDOM_CHOSEN:
            given = getattr(self, name)
            usual = given if given.size else np.array([encoded(name, SELDOM[name])])
            object.__setattr__(self, name, np.broadcast_to(usual, self.tp.shape))

    @property
    def size(self) -> int:
        return int(self.tp.size)

    @property
    def ranks(self) -> Ints:
        return self.tp * self.pp * self.cp * self.dp

    @property
    def copies(self) -> Ints:
        """Ranks that hold the same weights."""
        return self.dp * self.cp * self.stage_copies

    @property
    def expert_copies(self) -> Ints:
        """Ranks that hold the same experts."""
        return self.copies * self.tp // (self.expert_tp * self.ep)

    @property
    def replicas(self) -> Ints:
        """Copies of what ranks share out between them: one where all of them do, or where there is one alone."""
        return np.where(self.dp_shard > 0, np.maximum(self.dp // np.maximum(self.dp_shard, 1), 1), 1)

    @property
    def shards(self) -> Ints:
        """Ranks that share states out between them."""
        return self.copies // self.replicas

    @property
    def near_shards(self) -> Ints:
        """Ranks that weights are gathered from for a backward pass."""
        return np.where(self.hpz > 0, np.minimum(self.hpz, self.copies), self.shards)

    @property
    def expert_shards(self) -> Ints:
        """Ranks that share the states of experts out."""
        return self.expert_copies // self.replicas

    @property
    def layered(self) -> Ints:
        """The way to recompute of plans in which it is not the same in all layers; else 0."""
        return np.asarray(layered(self.recompute))

    @property
    def beside_backward(self) -> Ints:
        """Whether forwards exchange tokens beside the backward of another micro-batch, which is in flight longer."""
        return self.ep_overlap * (self.ep > 1)

    @property
    def placement(self) -> Ints:
        """Where the stages of each plan's pipeline are: places in `PLACEMENTS`."""
        return np.array([PLACEMENTS.index(one.placement) for one in SCHEDULES.values()])[self.schedule]

    @property
    def stage_copies(self) -> Ints:
        """Copies of the network that the ranks of a pipeline hold."""
        return np.array([one.placement.copies for one in SCHEDULES.values()])[self.schedule]

    @property
    def splits(self) -> NDArray[np.bool_]:
        """Whether backwards by input and by weight are tasks of their own."""
        return np.array([one.splits_backward for one in SCHEDULES.values()])[self.schedule]

    def schedule_of(self, row: int) -> Schedule:
        return SCHEDULES[names()[int(self.schedule[row])]]

    def by_schedule(self, figure: Callable[[Schedule, Ints], Any]) -> NDArray[Any]:
        """What each plan's schedule says of it, asked of all its rows at once."""
        found = np.zeros(self.size)
        for code in np.unique(self.schedule).tolist():
            rows = np.flatnonzero(self.schedule == code)
            found[rows] = figure(SCHEDULES[names()[code]], rows)
        return found

    @classmethod
    def of(cls, strategy: Strategy, recipe: Recipe) -> Grid:
        values = {name: getattr(strategy, name) for name in DEGREES}
        values |= {"micro_batch": recipe.micro_batch, "zero": recipe.zero}
        # Without a pipeline micro-batches go forward and back one by one, whatever the schedule.
        schedule = recipe.schedule if strategy.pp > 1 else usual_schedule(1).name
        values |= {"recompute": recompute_code(recipe.recompute), "schedule": code_of(schedule)}
        values |= {"sequence_parallel": int(recipe.sequence_parallel and strategy.tp > 1)}
        values |= {"cp_comm": CP_COMM_NAMES.index(recipe.cp_comm), "expert_tp": recipe.expert_tp or strategy.tp}
        values |= {name: encoded(name, getattr(recipe, name)) for name in SELDOM_CHOSEN}
        columns = {name: np.array([value], np.int64) for name, value in values.items()}
        return cls(**columns, stage_layers=recipe.stage_layers if strategy.pp > 1 else ())

    def having(self, **choices: Ints | int | str) -> Grid:
        """The same plans with other choices: one for all or one each, schedules and ways to recompute by name."""
        codes = {name: CODES[name](one) if isinstance(one, str) else one for name, one in choices.items()}
        columns: dict[str, Any] = {name: np.broadcast_to(one, self.tp.shape) for name, one in codes.items()}
        return replace(self, **columns)

    def differs(self, other: Grid) -> dict[str, NDArray[np.bool_]]:
        """The choices in which some plans are not those of another grid, and which plans."""
        found = {name: getattr(self, name) != getattr(other, name) for name in COLUMNS}
        return {name: rows for name, rows in found.items() if rows.any()}

    def pick(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Grid:
        columns = {name: picked(getattr(self, name), rows) for name in COLUMNS}
        return Grid(**columns, stage_layers=self.stage_layers)

    def cut(self, row: int) -> dict[str, int]:
        """What of a layer a rank of one plan runs."""
        return {name: int(getattr(self, name)[row]) for name in CUT}

    def strategy(self, row: int) -> Strategy:
        degrees: dict[str, Any] = {name: int(getattr(self, name)[row]) for name in DEGREES}
        return Strategy(**degrees)

    def recipe(self, row: int, optimizer: str) -> Recipe:
        expert_tp = int(self.expert_tp[row])
        return Recipe(
            micro_batch=int(self.micro_batch[row]),
            schedule=names()[int(self.schedule[row])],
            recompute=name_of(int(self.recompute[row])),
            zero=int(self.zero[row]),
            optimizer=optimizer,
            sequence_parallel=bool(self.sequence_parallel[row]),
            cp_comm=CP_COMM_NAMES[int(self.cp_comm[row])],
            expert_tp=0 if expert_tp == self.tp[row] else expert_tp,
            layers_per_stage=",".join(map(str, self.stage_layers)),
            **{name: decoded(name, int(getattr(self, name)[row])) for name in SELDOM_CHOSEN},
        )

    def groups(self, names: Sequence[str]) -> list[tuple[tuple[int, ...], Ints]]:
        """Rows that agree in some choices, with what they agree on."""
        columns = [getattr(self, name) for name in names]
        # A choice that all rows share decides nothing, and most searches have several.
        same = [bool(column.size) and column.min() == column.max() for column in columns]
        fixed = {place: int(columns[place][0]) for place, alike in enumerate(same) if alike}
        if len(fixed) == len(columns):
            return [(tuple(fixed.values()), np.arange(self.size))]
        columns = [column for column, alike in zip(columns, same, strict=True) if not alike]
        spans = [int(column.max(initial=0)) + 1 for column in columns]
        key = np.ravel_multi_index(tuple(columns), tuple(spans))
        found, place = np.unique(key, return_inverse=True)
        order = np.argsort(place.ravel(), kind="stable")
        edges = np.searchsorted(place.ravel()[order], np.arange(found.size + 1))
        values = np.stack(np.unravel_index(found, tuple(spans)), axis=1).tolist()
        for at, shared in fixed.items():
            values = [[*one[:at], shared, *one[at:]] for one in values]
        return [(tuple(value), order[edges[i] : edges[i + 1]]) for i, value in enumerate(values)]


COLUMNS = tuple(field.name for field in fields(Grid) if field.name != "stage_layers")
