"""The pieces of a network priced for every row of a grid: each way to cut a layer once, for all the micro-batches that
it comes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from gnomon.cost import tapes
from gnomon.cost.machine import Machine
from gnomon.engines.training.batches import EachRow, RowBatches
from gnomon.engines.training.grid import CUT, Grid, Ints
from gnomon.engines.training.layer_cost import LayerCost, cut_of, ops_of, tapes_of, units
from gnomon.engines.training.layer_cost import sizes as unit_sizes
from gnomon.engines.training.stages import Stages, kind_names
from gnomon.engines.training.traits import Traits
from gnomon.graph.layers import Cut
from gnomon.graph.ops import Gemm, Op
from gnomon.spec import Batch, Model, TrainingLoad
from gnomon.spec.recompute import NONE, choice_of, name_of
from gnomon.spec.workload import Floats

EXPERTS = ".experts."
"""In the names of what experts run."""


def priced(
    model: Model, load: TrainingLoad, grid: Grid, machine: Machine, traits: Traits, dtype: str,
    each: EachRow | None, stages: Stages,
) -> dict[str, LayerCost]:  # fmt: skip
    """The pieces of every row: seconds of the mean micro-batch, bytes of the fullest."""
    rows = _Rows(grid, RowBatches(model, load, grid, each))
    known, same = (each.known, rows.same) if each and each.known is not None else ({}, ())
    if same in known:
        kept: dict[str, LayerCost] = known[same]
        return kept
    for cp, ways in rows.by_context():
        cuts = {key: tapes_of(model, _cut(load, dtype, key), traits) for key in dict.fromkeys(key for key, _ in ways)}
        found = rows.batches.at(cp)
        batch, factor = found.batch, found.of_each(each.factor if each else None)
        host = found.spread_out(each.host if each else 1.0)
        times = _at_efficiency(tapes.price(ops_of(cuts.values()), machine, batch, factor), machine, traits, batch)
        for key, mode in ways:
            parts = stages.in_roles(cuts[key])
            made = units(parts, name_of(mode), times, machine, batch, traits, stages.weights, host)
            rows.add(
                {
                    part: {one.name: found.mean(getattr(unit, one.name)) for one in fields(LayerCost)}
                    for part, unit in made.items()
                }
            )
    pieces = {part: LayerCost(**columns) for part, columns in rows.columns().items()}
    if load.sequences is None:
        return pieces
    most = sized(model, load, grid, traits, dtype)
    pieces = {part: replace(unit, **most[part]) for part, unit in pieces.items()}
    known[same] = pieces
    return pieces


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeSeconds:
    """Seconds of the micro-batches that some rows are priced at, at least: of the whole network on one rank of each
    part, and of its lightest layer. Backward, of the half by input alone where that is less."""

    cp: int
    rows: Ints
    entry: Ints
    """The entry that each micro-batch is of."""
    forward_s: Floats
    backward_s: Floats
    both_s: Floats
    """Forward and backward of the network, with both halves."""
    layer_forward_s: Floats
    layer_backward_s: Floats


def node_seconds(
    model: Model, load: TrainingLoad, grid: Grid, machine: Machine, traits: Traits, dtype: str
) -> Iterator[NodeSeconds]:
    """Of every row, those with the same cut and way to recompute together."""
    stages, rows = Stages(model, grid.stage_layers), _Rows(grid, RowBatches(model, load, grid))
    counts = np.bincount(stages.order, minlength=len(stages.origins)).tolist()
    often = dict(zip(kind_names(len(counts)), counts, strict=True))
    for cp, ways in rows.by_context():
        cuts = {key: tapes_of(model, _cut(load, dtype, key), traits) for key in dict.fromkeys(key for key, _ in ways)}
        found = rows.batches.at(cp)
        batch = found.batch
        times = _at_efficiency(tapes.price(ops_of(cuts.values()), machine, batch), machine, traits, batch)
        for key, mode in ways:
            least = NONE if choice_of(mode).layers else name_of(mode)  # layers that are not recomputed take no longer
            made = units(cuts[key], least, times, machine, batch, traits, stages.weights)
            mine = next(place for agreed, place in rows.groups if agreed == (*key, mode))
            entry = np.arange(batch.size) if found.entry is None else found.entry
            yield NodeSeconds(cp=cp, rows=mine, entry=entry, **_at_least(made, often, batch.size))


def _at_least(made: Mapping[str, LayerCost], often: Mapping[str, int], size: int) -> dict[str, Floats]:
    """Seconds of a network, and of its lightest layer."""

    def total(of: Callable[[LayerCost], Floats]) -> Floats:
        whole = sum((often.get(part, 1) * of(one) for part, one in made.items()), np.zeros(1))
        return np.broadcast_to(whole, (size,))

    def least(of: Callable[[LayerCost], Floats]) -> Floats:
        return np.broadcast_to(np.min([of(made[kind]) for kind in often], axis=0), (size,))

    def back(one: LayerCost) -> Floats:
        return np.minimum(one.backward_s, one.input_s)

    return {
        "forward_s": total(lambda one: one.forward_s),
        "backward_s": total(back),
        "both_s": total(lambda one: one.forward_s + np.minimum(one.backward_s, one.input_s + one.weight_s)),
        "layer_forward_s": least(lambda one: one.forward_s),
        "layer_backward_s": least(back),
    }


def _at_efficiency(times: dict[Op, Floats], machine: Machine, traits: Traits, batch: Batch) -> dict[Op, Floats]:
    """Seconds by the kernels of an engine's version, where they are not those of the profile."""
    relative = traits.of_chip(machine.chip)
    if traits.whole_waves:
        times = {op: seconds * _last_wave(op, traits.whole_waves, machine, batch) for op, seconds in times.items()}
    grouped = traits.grouped_gemm
    return {
        op: seconds / relative.get(op.kind, 1.0) / (grouped if _is_grouped(op) else 1.0)
        for op, seconds in times.items()
    }


def _is_grouped(op: Op) -> bool:
    """Whether it multiplies the rows of several experts."""
    return isinstance(op, Gemm) and op.batch != 1 and EXPERTS in op.name


def _last_wave(op: Op, tile: tuple[int, int], machine: Machine, batch: Batch) -> Floats:
    """How much longer a GEMM takes where its last wave of tiles is no shorter than the others."""
    if op.kind != "gemm":
        return np.ones(1)
    shape = op.shape(batch)
    tiles = np.ceil(shape["m"] / tile[0]) * np.ceil(shape["n"] / tile[1]) * shape.get("batch", 1.0)
    load = tiles / machine.chip.sm_count
    return np.asarray(np.where(load > 1, np.ceil(load) / np.maximum(load, 1.0), 1.0))


def sized(model: Model, load: TrainingLoad, grid: Grid, traits: Traits, dtype: str) -> dict[str, dict[str, Floats]]:
    """Parameters and bytes of the pieces of every row, by its fullest micro-batch."""
    rows, stages = _Rows(grid, RowBatches(model, load, grid)), Stages.of(model, grid)
    for cp, ways in rows.by_context():
        cuts = {key: tapes_of(model, _cut(load, dtype, key), traits) for key in dict.fromkeys(key for key, _ in ways)}
        batch = rows.batches.fullest(cp)
        for key, mode in ways:
            rows.add(unit_sizes(stages.in_roles(cuts[key]), name_of(mode), batch))
    return rows.columns()


class _Rows:
    """Rows that share a cut and a way to recompute have the pieces in common, for each size of micro-batch."""

    def __init__(self, grid: Grid, batches: RowBatches) -> None:
        self.batches, self.groups = batches, grid.groups((*CUT, "recompute"))
        self.at: Ints = batches.place.copy()
        self.made: list[Mapping[str, Mapping[str, Floats]]] = []

    @property
    def same(self) -> tuple[int, ...]:
        """What the pieces of the rows follow from, where all rows are of one plan."""
        ((key, _),) = self.groups
        return (*key, int(self.batches.sizes[0]), int(self.batches.shares[0]))

    def by_context(self) -> Iterator[tuple[int, list[tuple[tuple[int, ...], int]]]]:
        """Cuts and ways to recompute by the ranks that share a sequence; `add` is called for each in this order."""
        count, known = 0, CUT.index("cp")
        for cp in sorted({key[known] for key, _ in self.groups}):
            within = [(key, rows) for key, rows in self.groups if key[known] == cp]
            for _, rows in within:
                self.at[rows] += count * self.batches.sizes.size
                count += 1
            yield cp, [(key[:-1], key[-1]) for key, _ in within]

    def add(self, made: Mapping[str, Mapping[str, Floats]]) -> None:
        """Figures of every piece for every size of micro-batch."""
        self.made.append(made)

    def columns(self) -> dict[str, dict[str, Floats]]:
        """One value a row."""

        def column(part: str, name: str) -> Floats:
            table = np.concatenate([np.broadcast_to(one[part][name], self.batches.sizes.shape) for one in self.made])
            return table[self.at]

        return {part: {name: column(part, name) for name in named} for part, named in self.made[0].items()}


def _cut(load: TrainingLoad, dtype: str, key: Sequence[int]) -> Cut:
    return cut_of(load.seq, dtype, dict(zip(CUT, key, strict=True)))
