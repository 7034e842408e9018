"""Drawn training steps: the sequences of every micro-batch, which rank gets it, and a few micro-batches that stand for
all."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from gnomon.spec.loads.base import generator
from gnomon.spec.loads.documents import Documents
from gnomon.spec.loads.packing import PackedRows
from gnomon.spec.loads.sequences import STEP, Sequences
from gnomon.spec.training import BALANCED, GROUP_BY_LENGTH, NONE, PADDING_FREE
from gnomon.spec.workload import Batch, Floats, Ints

STEPS = (32, 256)
"""Fewest and most steps that are drawn: at least one for each draw of an interval."""
DRAWN, MOST_DRAWN = 2**16, 2**20
"""Sequences of all drawn steps; of large batches more of them, or fewer steps."""
MEGA_BATCH = 50
"""Batches of a rank that `group_by_length` sorts at once (transformers, `get_length_grouped_indices`)."""
NODES = 129
"""Micro-batches that are priced: the others lie between two of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """What decides which sequences come together in a micro-batch."""

    seq: int
    global_batch: int
    micro_batch: int
    share: int
    """Sequences that a data-parallel rank takes per step."""
    cp: int = 1
    pair_cost: float = 0.0
    """Work of a query-key pair over that of a token in everything but attention."""

    @property
    def multiple(self) -> int:
        """Context-parallel ranks take two pieces each of what they share out."""
        return 2 * self.cp if self.cp > 1 else 1


@dataclass(frozen=True, eq=False)
class MicroBatches:
    """Micro-batches of the drawn steps, step by step; within a step one for each rank, then the next for each."""

    sequences: Sequences
    shape: BatchShape
    rows: PackedRows
    """Sequences as kernels take them; a micro-batch may pad them further."""
    kernel_rows: PackedRows
    """The same with documents as long as context parallelism has them."""
    members: Ints
    """The sequences of each micro-batch."""

    @property
    def count(self) -> int:
        return int(self.members.shape[0])

    @property
    def steps(self) -> int:
        return self.count * self.shape.micro_batch // self.shape.global_batch

    @cached_property
    def padded_to(self) -> Ints:
        """Tokens of every sequence of a micro-batch, where they are padded to the longest."""
        longest = self.rows.tokens[self.members].max(axis=1)
        return _rounded(longest, self.shape.multiple)

    @cached_property
    def tokens(self) -> Ints:
        """Of each micro-batch, padding included."""
        if self.sequences.packing == NONE:
            return self.padded_to * self.shape.micro_batch
        return np.asarray(self.kernel_rows.tokens[self.members].sum(axis=1), np.int64)

    @cached_property
    def pairs(self) -> Floats:
        """Causal query-key pairs of each."""
        if self.sequences.packing == NONE:
            length = self.padded_to.astype(float)
            return np.asarray(self.shape.micro_batch * length * (length + 1) / 2)
        return np.asarray(self.kernel_rows.pairs[self.members].sum(axis=1))

    @cached_property
    def counts(self) -> Ints:
        """Documents that attention keeps apart."""
        return np.asarray(self.kernel_rows.counts[self.members].sum(axis=1), np.int64)

    @cached_property
    def documents_differ(self) -> bool:
        """Whether attention runs over documents of unequal length in one kernel."""
        documents = self.kernel_rows.documents
        several = self.shape.micro_batch > 1 or bool((self.kernel_rows.counts > 1).any())
        return self.sequences.varlen and several and bool((documents != documents[0]).any())

    @cached_property
    def work(self) -> Floats:
        """What each takes, in tokens without attention."""
        return np.asarray(self.tokens + self.shape.pair_cost * self.pairs * self.cp_load)

    @cached_property
    def cp_load(self) -> Floats:
        """Attention of the busiest context-parallel rank over that of the mean one, of each."""
        sequences, cp = self.sequences, self.shape.cp
        if cp == 1 or not sequences.varlen or sequences.cuts_documents:
            return np.ones(self.count)
        each = zigzag(self.kernel_rows, cp)[self.members].sum(axis=1)
        return np.asarray(each.max(axis=1) / each.mean(axis=1))

    def on_ranks(self, dp: int) -> Ints:
        """The micro-batches of every step and rank, in the order in which it takes them: [steps, ranks, each]."""
        return np.arange(self.count).reshape(self.steps, -1, dp).transpose(0, 2, 1)

    @cached_property
    def nodes(self) -> InterpolationNodes:
        return _nodes(self)


@dataclass(frozen=True, eq=False)
class InterpolationNodes:
    """A few micro-batches that the others lie between, by their work."""

    batch: Batch
    """As one context-parallel rank has them."""
    work: Floats
    tokens: Floats
    """Of the whole micro-batch, padding included."""
    weight: Floats
    """The share of all micro-batches that each stands for: a mean over all is this one."""


def places(nodes: Floats, work: Floats) -> tuple[Ints, Floats]:
    """The node above each, and its share in what lies between that and the one below."""
    right = np.clip(np.searchsorted(nodes, work), 1 if nodes.size > 1 else 0, nodes.size - 1)
    low, high = nodes[right - 1], nodes[right]
    apart = np.where(high > low, high - low, 1.0)
    return right, np.where(high > low, np.clip((work - low) / apart, 0.0, 1.0), 1.0)


@lru_cache(maxsize=64)
def micro_batches(sequences: Sequences, identity: str, shape: BatchShape) -> MicroBatches:
    """The micro-batches of as many steps as are drawn. `identity` is that of the lengths."""
    rows = aligned_rows(sequences, identity, shape.seq, 1)
    steps = int(np.clip(DRAWN // shape.global_batch, *STEPS))
    steps = min(steps, max(MOST_DRAWN // shape.global_batch, 1))
    size = steps * shape.global_batch
    draws = generator(sequences.seed, STEP)
    epochs = -(-size // rows.count)
    order = np.concatenate([draws.permutation(rows.count) for _ in range(epochs)])[:size]
    if sequences.sampling == GROUP_BY_LENGTH:
        order = _sorted_within(order, rows.tokens[order], MEGA_BATCH * shape.share)
    elif sequences.sampling == BALANCED:
        work = (rows.tokens + shape.pair_cost * rows.pairs)[order].reshape(steps, -1)
        order = order.reshape(steps, -1)[np.arange(steps)[:, None], [_balanced(each, shape) for each in work]].ravel()
    aligned = aligned_rows(sequences, identity, shape.seq, shape.multiple)
    return MicroBatches(sequences, shape, rows, aligned, order.reshape(-1, shape.micro_batch))


@lru_cache(maxsize=32)
def aligned_rows(sequences: Sequences, identity: str, seq: int, multiple: int) -> PackedRows:
    """Sequences as kernels take them. Where they are flattened without padding, each document is rounded up to a
    multiple, so that context-parallel ranks have equal parts of it."""
    rows = sequences.computed(seq)
    flat = sequences.packing == PADDING_FREE or (sequences.packs and not sequences.pads_packs)
    return PackedRows(_rounded(rows.documents, multiple), rows.starts) if flat and multiple > 1 else rows


def _sorted_within(order: Ints, size: Floats | Ints, part: int) -> Ints:
    """The longest first within each part of the order."""
    return np.asarray(order[np.lexsort((-size, np.arange(order.size) // part))])


def _rounded(tokens: Ints, multiple: int) -> Ints:
    return np.asarray(-(-tokens // multiple) * multiple)


def _balanced(work: Floats, shape: BatchShape) -> Ints:
    """The sequences of a step so that ranks have equal work, in the order of its micro-batches: those of a rank are
    sorted, the longest first."""
    ranks = dealt_out(work, shape.global_batch // shape.share)
    return ranks.reshape(ranks.shape[0], -1, shape.micro_batch).transpose(1, 0, 2).ravel()


def dealt_out(work: Floats, ranks: int) -> Ints:
    """Places by rank, equally many each: the largest first, each to the rank with least work that has room."""
    most = work.size // ranks
    held: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0.0, rank) for rank in range(ranks)]
    for place in np.argsort(-work, kind="stable").tolist():
        load, rank = heapq.heappop(loads)
        held[rank].append(place)
        if len(held[rank]) < most:
            heapq.heappush(loads, (load + float(work[place]), rank))
    return np.array(held, np.int64)


def zigzag(rows: PackedRows, ranks: int) -> Floats:
    """Causal pairs of every rank of context parallelism that takes one early and one late piece of each sequence,
    wherever its documents end: [sequences, ranks]."""
    ends = np.cumsum(rows.documents)
    begins = ends - rows.documents
    tokens = rows.documents.astype(float)
    before = np.append(0.0, np.cumsum(tokens * (tokens + 1) / 2))
    first = begins[rows.starts][:, None]
    cuts = first + rows.tokens[:, None] * np.arange(2 * ranks + 1) / (2 * ranks)
    place = np.minimum(np.searchsorted(ends, cuts, side="right"), ends.size - 1)
    into = np.clip(cuts - begins[place], 0.0, tokens[place])
    pieces = np.diff(before[place] + into * (into + 1) / 2, axis=1)
    return np.asarray(pieces[:, :ranks] + pieces[:, : ranks - 1 : -1])


def _nodes(found: MicroBatches) -> InterpolationNodes:
    """Micro-batches of equal work are one node each where those are few, else the means of neighbours."""
    work, group = np.unique(found.work, return_inverse=True)
    if work.size > NODES:
        group = _neighbours(found.work)
    group, size = group.ravel(), np.bincount(group.ravel()).astype(float)

    def mean(figure: Floats | Ints) -> Floats:
        return np.asarray(np.bincount(group, figure) / size)

    work = mean(found.work)
    right, share = places(work, found.work)
    weight = np.bincount(right, share, minlength=size.size) / found.count
    weight += (
        np.bincount(right - 1, 1 - share, minlength=size.size)[: size.size] / found.count if size.size > 1 else 0.0
    )
    tokens, apart = mean(found.tokens), found.documents_differ
    counts = mean(found.counts)
    # Of the tokens on a rank: sums of q (q + 1) / 2 where those of the whole are of l (l + 1) / 2, and q is l / cp.
    cp = found.shape.cp
    pairs = ((2 * mean(found.pairs) - tokens) / cp**2 + tokens / cp) / 2
    zero, mine = np.zeros(size.shape), tokens / cp
    documents = _documents(found, group, size, mean) if apart else None
    return InterpolationNodes(
        Batch(zero, zero, counts, mine, pairs, mine, counts, documents=documents), work, tokens, weight
    )


def _neighbours(work: Floats) -> Ints:
    """A group for each: the least alone, the most alone, and between them equal steps of the square root."""
    least, most = float(work.min()), float(work.max())
    edges = np.linspace(least**0.5, most**0.5, NODES - 1) ** 2
    group = np.searchsorted(edges[1:-1], work, side="right") + 1
    group[work == least], group[work == most] = 0, NODES
    return np.asarray(np.unique(group, return_inverse=True)[1].ravel())


def _documents(found: MicroBatches, group: Ints, size: Floats, mean: Callable[[Floats | Ints], Floats]) -> Documents:
    each = found.shape.micro_batch
    return Documents(
        rows=found.kernel_rows,
        row=found.members.ravel(),
        at=np.repeat(group, each),
        weight=np.repeat(1 / size[group], each),
        of=np.arange(size.size),
        longest=mean(found.kernel_rows.longest[found.members].max(axis=1)),
        cp_load=mean(found.cp_load),
    )
