"""Seconds of each operator of a graph on a machine, at the sizes that a step's tables are made of.

A draw of the step cost multiplies each operator's time, so that operators are priced once for all draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.flash import key_tile
from gnomon.cost.latent import KEY_TILE
from gnomon.cost.machine import Machine
from gnomon.cost.prompts import OpTime, PromptTimes, Times, timed
from gnomon.graph import Attention, Graph
from gnomon.graph.dtypes import width
from gnomon.graph.mixer_ops import IndexScores, LatentDecode
from gnomon.graph.ops import TOKENS, Op
from gnomon.graph.phases import part_of, rows_of
from gnomon.spec import Batch
from gnomon.spec.workload import Floats

AT_ONCE, MOST = 16, 16_384
"""Numbers of decodes that are priced together, as a batch that grows or shrinks passes through all of them; fewer where
that would be more than so many sizes."""
KNOTS = 48
"""Contexts spread evenly in the logarithm, beside those where a tile or a window ends."""
INSIDE, TILES = 16, 8192
"""Tiles of keys that have knots inside too, as attention turns from one limit to another there; and those that have
knots at their ends."""

Decoding = Attention | LatentDecode | IndexScores


class OpTimes:
    """Seconds of the operators of steps of any tokens and sequences, with contexts up to `max_context`."""

    def __init__(self, graph: Graph, machine: Machine, *, max_context: int, max_tokens: int) -> None:
        self._graph, self._machine, self._max_context = graph, machine, max_context
        decodes = [op for op in graph.ops if part_of(op) == "decode"]
        self._attention = [op for op in decodes if isinstance(op, Decoding) or _by_context(op)]
        self._by_decodes = [op for op in decodes if op not in self._attention]
        self._at_knots: dict[int, Times] = {}
        self.prompts = PromptTimes(graph, machine, max_tokens)

    @cached_property
    def knots(self) -> NDArray[np.int64]:
        """Contexts between which a decode's time is taken as straight. It climbs where another tile of keys begins, by
        as much as a quarter where the cache is then cut into other parts, and turns where a window ends."""
        longest = max(self._max_context, 2)
        found = [np.geomspace(1, longest, KNOTS) - 1]
        for op in self._attention:
            found += self._tile_ends(op, longest) if isinstance(op, Decoding) else ()
        known = np.unique(np.concatenate(found).astype(np.int64))
        return known[known < longest]

    def _tile_ends(self, op: Decoding, longest: int) -> Iterator[Floats]:
        """Cached tokens on both sides of every tile's end, inside the first ones, and where a window bends;
        one that begins anew reads a part of the tile before it too (`edge`)."""
        tile, bends = _tile(op), op.bends(longest)
        yield np.array(bends, float)
        yield from _ends(tile * np.arange(1, min(longest / tile, TILES) + 1), tile)
        if isinstance(op, Attention) and op.window is not None and op.window.chunked:
            edge, length = self._machine.evidence(op.kind, op.kv_dtype).coefficients["edge"], op.window.length
            inside = tile * np.arange(1, length / tile + 1) - edge * tile
            for start in range(length, min(longest, int(TILES * tile)) + 1, length):
                yield from _ends(start + inside, tile)

    @cached_property
    def at_once(self) -> int:
        return max(min(AT_ONCE, MOST // self.knots.size), 1)

    def by_rows(self, of: str, rows: Floats) -> Times:
        """Operators that follow a step's `tokens` or its `logit_rows`, at so many."""
        found = [_none(rows.shape)]
        for op in self._graph.ops:
            size = rows_of(op)
            if size is None and of == "tokens" and part_of(op) is None:  # runs in every step, whatever its size
                size = TOKENS
            if size is not None and size.of == of:
                found.append(self._timed(op, _with_rows(rows, of)))
        return found

    def by_decodes(self, most: int) -> Times:
        """Operators that follow the number of decodes alone, of 1 to so many of them."""
        batch = Batch.decode(np.arange(1.0, most + 1), 0)
        return [_none((most,)), *(self._timed(op, batch) for op in self._by_decodes)]

    def attention(self, first: int) -> Times:
        """Operators that follow the cached tokens of decodes, of `at_once` numbers of them from `first` on (a row
        each), at the knots of their mean context."""
        if first not in self._at_knots:
            shape = (self.at_once, self.knots.size)
            sequences = np.repeat(np.arange(first, first + self.at_once, dtype=float), self.knots.size)
            batch = Batch.decode(sequences, np.tile(self.knots, self.at_once))
            priced = (self._timed(op, batch) for op in self._attention)
            self._at_knots[first] = [
                _none(shape),
                *(OpTime(one.name, *(figure.reshape(shape) for figure in one[1:])) for one in priced),
            ]
        return self._at_knots[first]

    def _timed(self, op: Op, batch: Batch) -> OpTime:
        return timed(self._machine, op, batch)


def _by_context(op: Op) -> bool:
    """Whether its size follows the cached tokens of decodes."""
    rows = rows_of(op)
    return rows is not None and rows.of == "decode_context"


def _none(shape: tuple[int, ...]) -> OpTime:
    """No operator's, so that a sum has the right size where there is none."""
    return OpTime("", *(np.zeros(shape) for _ in OpTime._fields[1:]))


def _ends(ends: Floats, tile: float) -> Iterator[Floats]:
    """A decode's own token is among the keys of its tiles."""
    yield from (np.floor(ends) - 1, np.floor(ends), *((ends - part * tile)[:INSIDE] for part in (0.25, 0.5, 0.75)))


def _tile(op: Decoding) -> float:
    """Cached tokens of a sequence for every tile of keys that a rank's kernel meets."""
    if not isinstance(op, Attention):
        return float(KEY_TILE)
    return float(key_tile(np.array(op.head_dim), width(op.kv_dtype))) / getattr(op, "context_share", 1.0)


def _with_rows(batch_rows: Floats, of: str) -> Batch:
    """A batch in which only one figure is set, for operators that depend on nothing else."""
    zero = np.zeros_like(batch_rows)
    tokens, logits = (batch_rows, zero) if of == "tokens" else (zero, batch_rows)
    return Batch(zero, zero, zero, tokens, zero, zero, logits)
