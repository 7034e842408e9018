"""Which layers each part of a pipeline holds: the kinds of layers of a network, and how many of each a part has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gnomon.engines.training.grid import Grid, Ints
from gnomon.sim.training.placement import PLACEMENTS
from gnomon.spec import Block, Model
from gnomon.spec.workload import Floats


class PipelineShape(NamedTuple):
    """What says which layers each chunk of a pipeline holds."""

    pp: int
    vp: int
    placement: int = 0
    """Its place in `PLACEMENTS`."""

    @property
    def parts(self) -> int:
        """Of the network."""
        return self.pp * self.vp

    @property
    def stages(self) -> Ints:
        """The part that each chunk of each rank is: [pp, chunks]."""
        return PLACEMENTS[self.placement].stages(self.pp, self.vp)


class Origin(NamedTuple):
    """Where a layer is from: the decoder, unless something else is said."""

    tower: int | None = None
    further: bool = False
    """It predicts tokens after the next."""


@dataclass(frozen=True)
class Stages:
    """The layers of a network in order. Parts are as equal as can be; where they are not, the first ones and the last,
    which also have the ends of the network, have a layer less than those before the last."""

    model: Model
    given: tuple[int, ...] = ()
    """Layers of every part, where a plan says them."""

    @cached_property
    def runs(self) -> tuple[tuple[Origin, Block], ...]:
        """All layers in order, as runs of equal ones: of towers, which the first stage has, of the decoder, and those
        that predict further tokens, which the last stage has."""
        model = self.model
        towers = [(Origin(tower=n), block) for n in range(len(model.beside)) for block in model.towers[n].blocks]
        further = [(Origin(further=True), block) for block in model.mtp]
        return (*towers, *((Origin(), block) for block in model.blocks), *further)

    @cached_property
    def origins(self) -> tuple[tuple[Origin, Block], ...]:
        """One layer of each kind with where it is from, in order of appearance."""
        return tuple(dict.fromkeys((origin, _alone(block)) for origin, block in self.runs))

    @cached_property
    def kinds(self) -> tuple[Block, ...]:
        """One layer of each kind."""
        return tuple(block for _, block in self.origins)

    @cached_property
    def order(self) -> Ints:
        """The kind of each layer."""
        places = {kind: place for place, kind in enumerate(self.origins)}
        counts = [block.count for _, block in self.runs]
        return np.repeat([places[origin, _alone(block)] for origin, block in self.runs], counts)

    @cached_property
    def beside(self) -> tuple[int, int]:
        """Layers that the first and the last stage have beside those of the decoder."""
        leading = sum(block.count for origin, block in self.runs if origin.tower is not None)
        return leading, sum(block.count for origin, block in self.runs if origin.further)

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Layers of each kind, in the smallest whole numbers."""
        counts = np.bincount(self.order, minlength=len(self.kinds))
        return tuple((counts // np.gcd.reduce(counts)).tolist())

    def uneven(self, grid: Grid) -> bool:
        """Whether parts of some plan differ."""
        return len(self.kinds) > 1 or len(set(self.given)) > 1 or bool(np.any(self.model.layers % (grid.pp * grid.vp)))

    def sizes(self, parts: int) -> Ints:
        """Layers of each part, from the first of the network to the last."""
        each, more = divmod(self.model.layers, parts)
        sizes = np.array(self.given) if len(self.given) == parts else np.full(parts, each)
        if len(self.given) != parts:
            sizes[parts - 1 - more : parts - 1] += 1
        leading, trailing = self.beside
        sizes[0] += leading
        sizes[-1] += trailing
        return sizes

    def counts(self, shape: PipelineShape) -> Ints:
        """Layers of each kind in every chunk: [pp, chunks, kinds]."""
        if shape not in self._counted:
            self._counted[shape] = np.ascontiguousarray(self.line(shape)[shape.stages])
        return self._counted[shape]

    @cached_property
    def _counted(self) -> dict[PipelineShape, Ints]:
        return {}

    def line(self, shape: PipelineShape) -> Ints:
        """Layers of each kind in every part, from the first of the network to the last: [parts, kinds]."""
        edges = np.concatenate([[0], np.cumsum(self.sizes(shape.parts))])
        found = np.zeros((shape.parts, len(self.kinds)), np.int64)
        for part in range(shape.parts):
            found[part] = np.bincount(self.order[edges[part] : edges[part + 1]], minlength=len(self.kinds))
        return found

    def leads(self, shape: PipelineShape) -> Ints:
        """The kind of the first layer of every part, in the network's order; -1 where it has none."""
        sizes = self.sizes(shape.parts)
        starts = np.minimum(np.cumsum(sizes) - sizes, self.order.size - 1)
        return np.where(sizes > 0, self.order[starts], -1)

    def most(self, grid: Grid) -> Floats:
        """Layers of the rank that has most of them, of every plan."""
        if self.given:
            shape = PipelineShape(*(int(getattr(grid, name)[0]) for name in PipelineShape._fields))
            return np.full(grid.size, float(self.counts(shape).sum(axis=(1, 2)).max()))
        return np.asarray(np.ceil(self.model.layers / grid.pp * grid.stage_copies) + max(self.beside))


def _alone(block: Block) -> Block:
    """A layer without what tells where it stands or how it is stored."""
    return replace(block, count=1, formats=())


def kind_names(kinds: int) -> tuple[str, ...]:
    """The names of the tapes of so many kinds of layers."""
    return ("layer", *(f"layer {number}" for number in range(2, kinds + 1)))
