"""Which layers each part of a pipeline holds: the kinds of layers of a network, and how many of each a part has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gnomon.engines.training.grid import Grid, Ints
from gnomon.graph.tape import Tape
from gnomon.sim.training.placement import PLACEMENTS
from gnomon.spec import Block, Model
from gnomon.spec.recompute import BLOCK, INSIDE, NONE, UNIFORM, Recompute, choice_of, parse
from gnomon.spec.workload import Floats

ENDS = ("embedding", "head")
PLAIN, WITHIN = ":saved", ":inside"
ROLES = ("", PLAIN, WITHIN)
"""How the names of a layer's tape end: of one that is recomputed as a plan says, of one that is not, and of one that is
recomputed with those before it."""


class PipelineShape(NamedTuple):
    """What says which layers each chunk of a pipeline holds."""

    pp: int
    vp: int
    placement: int = 0
    """Its place in `PLACEMENTS`."""
    layered: int = 0
    """The code of a way to recompute that is not the same in all layers; else 0."""

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
    wide: bool = False
    """Its GEMMs stay in 16 bits, where those of others run in fewer."""


@dataclass(frozen=True)
class Stages:
    """The layers of a network in order. Parts are as equal as can be; where they are not, the first ones and the last,
    which also have the ends of the network, have a layer less than those before the last."""

    model: Model
    given: tuple[int, ...] = ()
    """Layers of every part, where a plan says them."""
    roles: int = 1
    """More than one where layers of a plan are not all recomputed alike: then kinds are those of `ROLES`, each."""

    @classmethod
    def of(cls, model: Model, grid: Grid) -> Stages:
        """Those of the plans of a grid."""
        return cls(model, grid.stage_layers, len(ROLES) if np.any(grid.layered) else 1)

    @cached_property
    def runs(self) -> tuple[tuple[Origin, Block], ...]:
        """All layers in order, as runs of equal ones: of towers, which the first stage has, of the decoder, and those
        that predict further tokens, which the last stage has."""
        model = self.model
        towers = [(Origin(tower=n), block) for n in range(len(model.beside)) for block in model.towers[n].blocks]
        further = [(Origin(further=True), block) for block in model.mtp]
        return (*towers, *_decoder(model), *further)

    @cached_property
    def origins(self) -> tuple[tuple[Origin, Block], ...]:
        """One layer of each kind with where it is from, in order of appearance."""
        return tuple(dict.fromkeys((origin, _alone(block)) for origin, block in self.runs))

    @cached_property
    def kinds(self) -> tuple[Block, ...]:
        """One layer of each kind."""
        return tuple(block for _, block in self.origins) * self.roles

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tapes of each kind."""
        plain = kind_names(len(self.origins))
        return tuple(f"{name}{role}" for role in ROLES[: self.roles] for name in plain)

    def in_roles(self, parts: Mapping[str, Tape]) -> dict[str, Tape]:
        """The pieces of a network with one of each kind: a layer's tape is the same in all roles."""
        return {**parts, **{name: parts[name.partition(":")[0]] for name in self.names}}

    @cached_property
    def order(self) -> Ints:
        """The kind of each layer, in the first role."""
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
        counts = np.bincount(self.order, minlength=len(self.origins))
        return tuple((counts // np.gcd.reduce(counts)).tolist())

    def uneven(self, grid: Grid) -> bool:
        """Whether parts of some plan differ, or their layers."""
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
        found, order = np.zeros((shape.parts, len(self.kinds)), np.int64), self.ordered(shape)
        for part in range(shape.parts):
            found[part] = np.bincount(order[edges[part] : edges[part + 1]], minlength=len(self.kinds))
        return found

    def ordered(self, shape: PipelineShape) -> Ints:
        """The kind of each layer, in the role that it has in such a pipeline."""
        if not shape.layered:
            return self.order
        choice, sizes = choice_of(shape.layered), self.sizes(shape.parts)
        roles, starts = np.zeros(self.order.size, np.int64), np.cumsum(sizes) - sizes
        for parts in shape.stages.tolist():
            first = 0
            for part in parts:
                within = np.arange(sizes[part])
                roles[starts[part] + within] = _role(choice, within, first)
                first += int(sizes[part])
        return np.asarray(self.order + roles * len(self.origins))

    def parts_of(self, shape: PipelineShape, rank: int) -> list[list[int]]:
        """The kinds of the layers of each part of a rank, in order."""
        order, edges = self.ordered(shape), np.concatenate([[0], np.cumsum(self.sizes(shape.parts))])
        return [order[edges[part] : edges[part + 1]].tolist() for part in shape.stages[rank].tolist()]

    def plain(self, kind: int) -> int:
        """The kind of a layer like that, which is not recomputed."""
        return kind % len(self.origins) + ROLES.index(PLAIN) * len(self.origins)

    def is_within(self, kind: int) -> bool:
        """Whether such a layer is recomputed from the input of one before it."""
        return kind // len(self.origins) == ROLES.index(WITHIN)

    def total(self, grid: Grid) -> Ints:
        """Layers of each kind in the network of every plan: [kinds, rows]."""
        if self.roles == 1:
            return np.bincount(self.order, minlength=len(self.kinds))[:, None]
        found = np.zeros((len(self.kinds), grid.size), np.int64)
        for values, rows in grid.groups(PipelineShape._fields):
            found[:, rows] = self.line(PipelineShape(*values)).sum(axis=0)[:, None]
        return found

    def leads(self, shape: PipelineShape) -> Ints:
        """The kind of the first layer of every part, in the network's order; -1 where it has none."""
        sizes = self.sizes(shape.parts)
        starts = np.minimum(np.cumsum(sizes) - sizes, self.order.size - 1)
        return np.where(sizes > 0, self.ordered(shape)[starts], -1)

    def most(self, grid: Grid) -> Floats:
        """Layers of the rank that has most of them, of every plan."""
        if self.given:
            shape = PipelineShape(*(int(getattr(grid, name)[0]) for name in PipelineShape._fields))
            return np.full(grid.size, float(self.counts(shape).sum(axis=(1, 2)).max()))
        return np.asarray(np.ceil(self.model.layers / grid.pp * grid.stage_copies) + max(self.beside))


def _role(choice: Recompute, within: Ints, first: int) -> Ints:
    """The role of each layer of a part, by its place there; `first` layers of the rank's parts come before."""
    if choice.layers == BLOCK:
        return np.where(within < choice.count, 0, ROLES.index(PLAIN))
    if choice.layers == UNIFORM:
        return np.where(within % choice.count == 0, 0, ROLES.index(WITHIN))
    return np.where((first + within + 1) % choice.count == 0, 0, ROLES.index(PLAIN))


def mode_of(name: str, recompute: str) -> str:
    """How a piece of a network is recomputed, by its name: neither the embedding nor the head is."""
    if name in ENDS or name.endswith(PLAIN):
        return NONE
    return INSIDE if name.endswith(WITHIN) else parse(recompute).each


def _decoder(model: Model) -> Iterator[tuple[Origin, Block]]:
    """Runs of equal layers of the decoder, those at its ends apart whose GEMMs stay in 16 bits."""
    first, last = model.wide_layers
    edges, start = (0, first, model.layers - last, model.layers), 0
    for block in model.blocks:
        for place, (low, high) in enumerate(pairwise(edges)):
            count = min(high, start + block.count) - max(low, start)
            if count > 0:
                yield Origin(wide=place != 1), block if count == block.count else replace(block, count=count)
        start += block.count


def _alone(block: Block) -> Block:
    """A layer without what tells where it stands or how it is stored."""
    return replace(block, count=1, formats=())


def kind_names(kinds: int) -> tuple[str, ...]:
    """The names of the tapes of so many kinds of layers."""
    return ("layer", *(f"layer {number}" for number in range(2, kinds + 1)))
