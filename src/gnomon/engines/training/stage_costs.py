"""Every chunk of every plan: the layers it holds, and what they take together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from gnomon.engines.training.comm import FrozenWeights, ParamCount
from gnomon.engines.training.grid import Grid, Ints
from gnomon.engines.training.stages import PipelineShape, Stages
from gnomon.spec.workload import Floats

SECONDS = ("forward_s", "backward_s", "input_s", "weight_s", "reduce_s")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerCosts:
    """A layer of one kind on one rank, one row per plan. Seconds and saved activation bytes are per micro-batch."""

    forward_s: Floats
    backward_s: Floats
    lead_forward_s: Floats
    """What the first layer of a chunk adds to that."""
    lead_backward_s: Floats
    input_s: Floats
    """The backward by input alone, and by weight alone."""
    lead_input_s: Floats
    weight_s: Floats
    overlap_s: Floats
    """What a forward that runs together with a backward saves: the communication each hides of the other's."""
    compute_only_forward_s: Floats
    """Were all collectives in it free."""
    compute_only_backward_s: Floats
    compute_only_input_s: Floats
    reduce_s: Floats
    held: ParamCount
    narrow: Floats
    """Parameters with copies in a narrower format."""
    frozen: FrozenWeights
    saved_activation_bytes: Floats
    peak_bytes: Floats

    def pick(self, rows: Ints) -> LayerCosts:
        apart: dict[str, Any] = {
            "held": ParamCount(self.held.dense[rows], self.held.experts[rows]),
            "frozen": self.frozen.pick(rows),
        }
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in apart}
        return LayerCosts(**{name: column[rows] for name, column in columns.items()}, **apart)


@dataclass(frozen=True, kw_only=True, eq=False)
class StageCosts:
    """`kinds` are layers of each kind, `ends` what the embedding adds to the first chunk and the head to the last."""

    stages: Stages
    grid: Grid
    kinds: tuple[LayerCosts, ...]
    ends: Mapping[str, Mapping[str, Floats]]
    each: Mapping[str, Floats] = field(default_factory=dict)
    """What every chunk has beside its layers: of the ends, where they are cut over all, or of a technique's work."""

    def pick(self, rows: Ints) -> StageCosts:
        """Some of the plans."""
        ends = {end: {name: column[rows] for name, column in columns.items()} for end, columns in self.ends.items()}
        kinds = tuple(kind.pick(rows) for kind in self.kinds)
        each = {name: column[rows] for name, column in self.each.items()}
        return StageCosts(stages=self.stages, grid=self.grid.pick(rows), kinds=kinds, ends=ends, each=each)

    @cached_property
    def uneven(self) -> bool:
        return self.stages.uneven(self.grid)

    @cached_property
    def groups(self) -> list[tuple[PipelineShape, Ints]]:
        """Rows by the length of their pipelines, the chunks of a rank and where they are."""
        return [(PipelineShape(*values), rows) for values, rows in self.grid.groups(PipelineShape._fields)]

    def shape_of(self, row: int) -> PipelineShape:
        return PipelineShape(*(int(getattr(self.grid, name)[row]) for name in PipelineShape._fields))

    def of_row(self, name: str, row: int) -> Floats:
        """Seconds of every chunk of one plan, ends included: [pp, vp]. Compute-only ones have their ends as they
        are."""
        return np.asarray(self.of_rows(name, self.shape_of(row), np.array([row]))[0])

    def of_rows(self, name: str, shape: PipelineShape, rows: Ints) -> Floats:
        """Of plans with the same pipeline: [rows, pp, vp]."""
        plain, found = name.removeprefix("compute_only_"), self._line(name, shape, rows)
        if plain in self.ends["first"]:
            found[:, 0] += self.ends["first"][plain][rows]
            found[:, -1] += self.ends["last"][plain][rows]
        return np.asarray(found[:, shape.stages])

    def bodies(self, name: str, shape: PipelineShape, rows: Ints) -> Floats:
        """Without the ends, of plans with the same pipeline: [rows, pp, chunks]."""
        return self._line(name, shape, rows)[:, shape.stages]

    def _line(self, name: str, shape: PipelineShape, rows: Ints) -> Floats:
        """Without the ends, in the network's order: [rows, parts]."""
        counts, leads = self.stages.line(shape), self.stages.leads(shape)
        found = np.zeros((rows.size, shape.parts))
        for place, kind in enumerate(self.kinds):
            found += counts[None, :, place] * getattr(kind, name)[rows, None]
            if hasattr(kind, f"lead_{name}"):
                found += (leads == place)[None] * getattr(kind, f"lead_{name}")[rows, None]
        return np.asarray(found + self._each(name.removeprefix("compute_only_"))[rows, None])

    def longer(self, name: str, seconds: Floats) -> StageCosts:
        """Every chunk takes so many seconds more."""
        return replace(self, each={**self.each, name: self._each(name) + seconds})

    def _each(self, name: str) -> Floats:
        return self.each[name] if name in self.each else np.zeros(self.grid.size)

    def columns(self) -> dict[str, Any]:
        """Columns of the common chunk, and what the first and the last take beyond it."""
        if not self.uneven:
            return self._even_columns()
        names = [*SECONDS, *(f"{end}_{name}" for end in ("first", "last") for name in SECONDS)]
        found: dict[str, Any] = {name: np.empty(self.grid.size) for name in names}
        found["first_layers"], found["overlap_s"] = np.empty(self.grid.size, np.int64), np.empty(self.grid.size)
        for shape, rows in self.groups:
            found["first_layers"][rows] = self.stages.sizes(shape.parts)[0]
            found["overlap_s"][rows] = self._line("overlap_s", shape, rows).max(axis=1)
            for name in SECONDS:
                line = self._line(name, shape, rows)
                common = line[:, 1:-1].min(axis=1) if shape.parts > 2 else line.min(axis=1)
                found[name][rows] = common
                first, last = (self._end(end, name)[rows] for end in ("first", "last"))
                found[f"first_{name}"][rows] = first + line[:, 0] - common
                found[f"last_{name}"][rows] = last + (line[:, -1] - common if shape.parts > 1 else 0.0)
        return found

    def _end(self, end: str, name: str) -> Floats:
        return self.ends[end][name] if name in self.ends[end] else np.zeros(self.grid.size)

    def _even_columns(self) -> dict[str, Any]:
        count: Ints = self.stages.model.layers // (self.grid.pp * self.grid.vp)
        (kind,) = self.kinds
        found: dict[str, Any] = {
            "forward_s": count * kind.forward_s + kind.lead_forward_s + self._each("forward_s"),
            "backward_s": count * kind.backward_s + kind.lead_backward_s + self._each("backward_s"),
            "input_s": count * kind.input_s + kind.lead_input_s + self._each("input_s"),
            "weight_s": count * kind.weight_s + self._each("weight_s"),
            "overlap_s": count * kind.overlap_s,
            "reduce_s": count * kind.reduce_s + self._each("reduce_s"),
            "first_layers": count,
        }
        return found | {f"{end}_{name}": self._end(end, name) for end in ("first", "last") for name in SECONDS}

    def on_rank(self, rank: Ints | int) -> list[Ints]:
        """Layers of each kind on a pipeline rank of every plan; `rank` may differ from row to row."""
        if not self.uneven:
            each = self.stages.model.layers // (self.grid.pp * self.grid.vp)
            return [self.grid.vp * self.grid.stage_copies * each]
        where = np.broadcast_to(rank, self.grid.tp.shape)
        found = np.zeros((len(self.kinds), self.grid.size), np.int64)
        for shape, rows in self.groups:
            found[:, rows] = self.stages.counts(shape).sum(axis=1)[where[rows]].T
        return list(found)

    def body(self, rank: Ints | int) -> ParamCount:
        """Parameters of a rank's layers."""
        found = ParamCount(np.zeros(self.grid.size), np.zeros(self.grid.size))
        for count, kind in zip(self.on_rank(rank), self.kinds, strict=True):
            found = found.plus(kind.held.times(count))
        return found

    @cached_property
    def fullest(self) -> ParamCount:
        """Parameters of the layers of the rank that has most of them."""
        if not self.uneven:
            return self.body(0)
        dense, experts = np.zeros(self.grid.size), np.zeros(self.grid.size)
        for shape, rows in self.groups:
            most = ParamCount(np.zeros(rows.size), np.zeros(rows.size))
            # Ranks with the same layers hold the same.
            for counts in dict.fromkeys(map(tuple, self.stages.counts(shape).sum(axis=1).tolist())):
                held = ParamCount(np.zeros(rows.size), np.zeros(rows.size))
                for count, kind in zip(counts, self.kinds, strict=True):
                    held = held.plus(ParamCount(kind.held.dense[rows] * count, kind.held.experts[rows] * count))
                more = held.total > most.total
                most = ParamCount(np.where(more, held.dense, most.dense), np.where(more, held.experts, most.experts))
            dense[rows], experts[rows] = most
        return ParamCount(dense, experts)

    @cached_property
    def narrow(self) -> Floats:
        """Parameters with narrower copies on a rank, at most."""
        return np.asarray(np.max([kind.narrow for kind in self.kinds], axis=0) * self.stages.most(self.grid))

    def narrow_on(self, rank: Ints | int) -> Floats:
        """Parameters with narrower copies on a rank."""
        return np.asarray(sum(n * kind.narrow for n, kind in zip(self.on_rank(rank), self.kinds, strict=True)))

    def frozen(self, rank: Ints | int) -> FrozenWeights:
        """Of a rank's layers."""
        found = FrozenWeights(np.zeros(self.grid.size), np.zeros(self.grid.size))
        for count, kind in zip(self.on_rank(rank), self.kinds, strict=True):
            found = found.plus(kind.frozen.times(count))
        return found

    def peak_bytes(self, rank: Ints | int) -> Floats:
        """What the fullest layer of a rank needs beside what stays."""
        counts = self.on_rank(rank)
        most: Floats = np.max([kind.peak_bytes * (n > 0) for n, kind in zip(counts, self.kinds, strict=True)], axis=0)
        return most if self.stages.roles == 1 else np.where(self.grid.layered, self._unlike(rank), most)

    def _unlike(self, rank: Ints | int) -> Floats:
        """Where layers are not all recomputed alike: what later ones saved is gone when one runs backward, and those
        that are recomputed together with it are there again."""
        found, where = np.zeros(self.grid.size), np.broadcast_to(rank, self.grid.tp.shape)
        for shape, rows in ((shape, rows) for shape, rows in self.groups if shape.layered):
            for place in np.unique(where[rows]).tolist():
                mine = rows[where[rows] == place]
                for part in self.stages.parts_of(shape, place):
                    beside, gone = self.beside(part, mine), np.zeros(mine.size)
                    for kind, there in zip(reversed(part), reversed(beside), strict=True):
                        found[mine] = np.maximum(found[mine], self.kinds[kind].peak_bytes[mine] + there - gone)
                        gone = gone + self.kinds[kind].saved_activation_bytes[mine]
        return found

    def beside(self, part: Sequence[int], rows: Ints) -> list[Floats]:
        """Bytes that the layers before one of a part hold when it runs backward, of those recomputed together."""
        if self.stages.roles == 1:
            return [np.zeros(rows.size)] * len(part)
        found = [np.zeros(rows.size)]
        for before, kind in pairwise(part):
            there, plain = self.kinds[before], self.kinds[self.stages.plain(before)]
            more = plain.saved_activation_bytes[rows] - there.saved_activation_bytes[rows]
            found.append((found[-1] + more) * self.stages.is_within(kind))
        return found[: len(part)]

    def saved_activation_bytes(self, shape: PipelineShape, rows: Ints, rank: int) -> tuple[tuple[int, ...], Floats]:
        """The kind of each chunk of a rank by the layers it holds, and what one pass leaves of each: [rows, kinds]."""
        counts, alike = np.unique(self.stages.counts(shape)[rank], axis=0, return_inverse=True)
        kept = np.stack([kind.saved_activation_bytes[rows] for kind in self.kinds], axis=1)
        return tuple(alike.ravel().tolist()), np.asarray(kept @ counts.T)
