"""The micro-batches that rows of a grid are priced at: equal sequences, or a few that stand for drawn ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gnomon.engines.training.grid import Grid, Ints
from gnomon.graph.ops import Op
from gnomon.spec import AttentionMixer, Batch, LatentAttention, Model, TrainingLoad
from gnomon.spec.loads.documents import Documents
from gnomon.spec.loads.micro_batches import BatchShape, MicroBatches, micro_batches
from gnomon.spec.training import BALANCED, GROUP_BY_LENGTH, NONE, PADDING_FREE
from gnomon.spec.workload import Floats

Factor = Callable[[Op], Floats | float]
"""What the time of an operator is multiplied by."""


@dataclass(frozen=True, slots=True)
class EachRow:
    """What tells the rows of one plan apart: draws of the error of every operator, or its drawn micro-batches."""

    factor: Factor | None = None
    host: Floats | float = 1.0
    """What each row multiplies the host's seconds for launches and hooks by."""
    micro_batches: bool = False
    known: dict[tuple[int, ...], Any] | None = None
    """What other plans had priced of their micro-batches, by their cut."""


@dataclass(frozen=True, eq=False)
class PricedBatches:
    """Batches, of which each entry, a size of micro-batch or a row, has one or several."""

    batch: Batch
    entry: Ints | None = None
    """Of each batch; None where each entry has one."""
    weight: Floats | float = 1.0
    """Its share in the mean over all micro-batches of the entry."""

    def mean(self, column: Floats) -> Floats:
        """Of every entry."""
        if self.entry is None or column.size == 1:
            return column
        return np.asarray(np.bincount(self.entry, column * self.weight), float)

    def spread_out(self, drawn: Floats | float) -> Floats | float:
        """A draw for every entry as one for each of its batches."""
        several = self.entry is not None and isinstance(drawn, np.ndarray) and drawn.size > 1
        return drawn[self.entry] if several else drawn  # type: ignore[index]

    def of_each(self, factor: Factor | None) -> Factor | None:
        """Draws of every entry as draws of its batches."""
        return factor and (lambda op: self.spread_out(factor(op)))


class RowBatches:
    """The entries of a grid's rows: their sizes of micro-batches or, where rows are told apart, every row."""

    def __init__(self, model: Model, load: TrainingLoad, grid: Grid, each: EachRow | None = None) -> None:
        self.model, self.load, self.each = model, load, each or EachRow()
        shares = load.global_batch // grid.dp if _by_share(load) else np.zeros(grid.size, np.int64)
        if each is None:
            key = grid.micro_batch * (load.global_batch + 1) + shares
            found, place = np.unique(key, return_inverse=True)
            self.sizes, self.shares = np.divmod(found, load.global_batch + 1)
            self.place: Ints = place.ravel().astype(np.int64)
        else:
            self.sizes, self.shares, self.place = grid.micro_batch, shares, np.arange(grid.size)

    def at(self, cp: int) -> PricedBatches:
        """Batches as one of so many context-parallel ranks has them."""
        if self.load.sequences is None:
            return PricedBatches(Batch.prefill(self.sizes, self.load.seq // cp))
        if self.each.micro_batches:
            return PricedBatches(self.drawn(0, cp).nodes.batch)
        _, first, which = np.unique(np.stack([self.sizes, self.shares]), axis=1, return_index=True, return_inverse=True)
        nodes = [self.drawn(entry, cp).nodes for entry in first.tolist()]
        counts = np.array([one.work.size for one in nodes])
        batch, which = joined([one.batch for one in nodes]), which.ravel()
        before = np.cumsum(counts) - counts
        index = np.concatenate([before[one] + np.arange(counts[one]) for one in which.tolist()])
        entry = None if counts.max() == 1 else np.repeat(np.arange(which.size), counts[which])
        weight = np.concatenate([nodes[one].weight for one in which.tolist()])
        return PricedBatches(taken(batch, index), entry, weight)

    def drawn(self, entry: int, cp: int) -> MicroBatches:
        """Every drawn micro-batch of an entry."""
        return drawn_micro_batches(self.model, self.load, int(self.sizes[entry]), int(self.shares[entry]), cp)

    def fullest(self, cp: int) -> Batch:
        """The tokens of the fullest micro-batch of every entry on one rank."""
        if self.load.sequences is None:
            return Batch.prefill(self.sizes, self.load.seq // cp)
        most = [self._most_tokens(entry, cp) for entry in range(self.sizes.size)]
        return Batch.prefill(np.ones(self.sizes.size), np.array(most) / cp)

    def _most_tokens(self, entry: int, cp: int) -> float:
        """Some micro-batch of a run has the longest sequence there may be."""
        sequences, seq, size = self.load.sequences, self.load.seq, int(self.sizes[entry])
        assert sequences is not None
        if sequences.packing not in (NONE, PADDING_FREE):
            return float(size * seq)
        drawn = self.drawn(entry, cp)
        multiple = drawn.shape.multiple
        longest = -(-sequences.longest(seq) // multiple) * multiple
        if sequences.packing == NONE:
            return float(size * longest)
        most = int(np.argmax(drawn.tokens))
        return float(drawn.tokens[most] + longest - drawn.kernel_rows.longest[drawn.members[most]].max())


def row_tokens(model: Model, load: TrainingLoad, grid: Grid, each: EachRow | None = None) -> Floats:
    """Mean tokens of a micro-batch of every row, padding included."""
    if load.sequences is None:
        return np.asarray(grid.micro_batch * load.seq)
    rows, found = RowBatches(model, load, grid, each), np.zeros(grid.size)
    for (cp,), mine in grid.groups(("cp",)):
        priced = rows.at(cp)
        found[mine] = cp * priced.mean(priced.batch.tokens)[rows.place[mine]]
    return found


def most_tokens(model: Model, load: TrainingLoad, grid: Grid) -> Floats:
    """Tokens of the fullest micro-batch of every row."""
    if load.sequences is None:
        return np.asarray(grid.micro_batch * load.seq)
    rows, found = RowBatches(model, load, grid), np.zeros(grid.size)
    for (cp,), mine in grid.groups(("cp",)):
        found[mine] = cp * rows.fullest(cp).tokens[rows.place[mine]]
    return found


def drawn_micro_batches(model: Model, load: TrainingLoad, micro_batch: int, share: int, cp: int) -> MicroBatches:
    """The micro-batches of drawn steps; `share` are the sequences of a rank where they decide which come together."""
    assert load.sequences is not None
    shape = BatchShape(
        seq=load.seq,
        global_batch=load.global_batch,
        micro_batch=micro_batch,
        share=share,
        cp=cp,
        pair_cost=pair_cost(model),
    )
    return micro_batches(load.sequences, load.sequences.lengths.identity, shape)


def _by_share(load: TrainingLoad) -> bool:
    return load.sequences is not None and load.sequences.sampling in (GROUP_BY_LENGTH, BALANCED)


def pair_cost(model: Model) -> float:
    """FLOPs of a query-key pair in all layers over those of a token in all matrices."""
    pairs = sum(block.count * _channels(block.mixer) for block in model.blocks)
    head = model.vocab * (model.embedding_width or model.hidden) if model.tied_embeddings else 0
    return pairs / (model.active_parameters - model.embedding_parameters + head)


def _channels(mixer: object) -> float:
    """Numbers of keys and values that a query meets."""
    if isinstance(mixer, AttentionMixer):
        return mixer.heads * 2.0 * mixer.head_dim
    if isinstance(mixer, LatentAttention):
        return mixer.heads * float(mixer.nope_dim + mixer.rope_dim + mixer.value_dim)
    return 0.0


def joined(batches: Sequence[Batch]) -> Batch:
    """Batches one after the other, their documents with them."""
    kept = [batch.documents for batch in batches if batch.documents is not None]
    return replace(Batch.stack(batches), documents=Documents.join(kept) if kept else None)


def taken(batch: Batch, index: Ints) -> Batch:
    """Some rows of a batch."""
    columns = {one.name: getattr(batch, one.name)[index] for one in fields(Batch) if one.name != "documents"}
    return Batch(**columns, documents=batch.documents.take(index) if batch.documents else None)
