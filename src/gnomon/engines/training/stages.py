"""Which layers each part of a pipeline holds: the kinds of layers of a network, and how many of each a part has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gnomon.engines.training.grid import Grid, Ints
from gnomon.spec import Block, Model


@dataclass(frozen=True)
class Stages:
    """The layers of a network in order. Parts are as equal as can be; where they are not, the first ones and the last,
    which also have the ends of the network, have a layer less than those before the last."""

    model: Model

    @cached_property
    def kinds(self) -> tuple[Block, ...]:
        """One layer of each kind, in order of appearance."""
        return tuple(dict.fromkeys(_alone(block) for block in self.model.blocks))

    @cached_property
    def order(self) -> Ints:
        """The kind of each layer."""
        places = {kind: place for place, kind in enumerate(self.kinds)}
        return np.repeat([places[_alone(b)] for b in self.model.blocks], [b.count for b in self.model.blocks])

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Layers of each kind, in the smallest whole numbers."""
        counts = np.bincount(self.order, minlength=len(self.kinds))
        return tuple((counts // np.gcd.reduce(counts)).tolist())

    def uneven(self, grid: Grid) -> bool:
        """Whether parts of some plan differ."""
        return len(self.kinds) > 1 or bool(np.any(self.model.layers % (grid.pp * grid.vp)))

    def sizes(self, parts: int) -> Ints:
        """Layers of each part, from the first of the network to the last."""
        each, more = divmod(self.model.layers, parts)
        sizes = np.full(parts, each)
        sizes[parts - 1 - more : parts - 1] += 1
        return sizes

    def counts(self, pp: int, vp: int) -> Ints:
        """Layers of each kind in every chunk: [pp, vp, kinds]. Chunk `c` of rank `r` is part `c * pp + r`."""
        if (pp, vp) not in self._counted:
            self._counted[pp, vp] = self._count(pp, vp)
        return self._counted[pp, vp]

    @cached_property
    def _counted(self) -> dict[tuple[int, int], Ints]:
        return {}

    def _count(self, pp: int, vp: int) -> Ints:
        edges = np.concatenate([[0], np.cumsum(self.sizes(pp * vp))])
        found = np.zeros((pp * vp, len(self.kinds)), np.int64)
        for part in range(pp * vp):
            found[part] = np.bincount(self.order[edges[part] : edges[part + 1]], minlength=len(self.kinds))
        return np.ascontiguousarray(found.reshape(vp, pp, len(self.kinds)).swapaxes(0, 1))

    def leads(self, pp: int, vp: int) -> Ints:
        """The kind of the first layer of every chunk: [pp, vp]."""
        starts = np.concatenate([[0], np.cumsum(self.sizes(pp * vp))[:-1]])
        return np.asarray(self.order[starts].reshape(vp, pp).T)


def _alone(block: Block) -> Block:
    """A layer without what tells where it stands or how it is stored."""
    return replace(block, count=1, formats=())


def kind_names(kinds: int) -> tuple[str, ...]:
    """The names of the tapes of so many kinds of layers."""
    return ("layer", *(f"layer {number}" for number in range(2, kinds + 1)))
