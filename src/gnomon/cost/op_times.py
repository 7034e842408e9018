"""Seconds of each operator of a graph on a machine, at the sizes that a step's tables are made of.

A draw of the step cost multiplies each operator's time, so that operators are priced once for all draws.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.machine import Machine
from gnomon.cost.prompts import PromptTimes
from gnomon.graph import Graph
from gnomon.graph.ops import TOKENS, Rows
from gnomon.graph.phases import part_of, rows_of
from gnomon.spec import Batch
from gnomon.spec.workload import Floats

TILES, STAIRS = (128, 160), 9
"""Keys that a decode meets at a time, in 16 bits and in eight: its time rises by a tile, and the first ones show."""
BLOCK = 16
"""Numbers of decodes that are priced at once: a batch that grows or shrinks passes through all of them."""
KNOTS = 48
"""Knots of a decode curve, spread evenly in the logarithm; see the test that bounds the error they leave."""

Times = list[tuple[str, Floats]]
"""By operator; nobody's first, of no time, so that a sum has the right size."""


class OpTimes:
    """Of steps of up to so many tokens and sequences, with contexts up to `max_context`."""

    def __init__(self, graph: Graph, machine: Machine, *, max_context: int, max_tokens: int) -> None:
        self._graph, self._machine, self._max_context = graph, machine, max_context
        self._decodes = [op for op in graph.ops if part_of(op) == "decode"]
        self._at_knots: dict[int, Times] = {}
        self.prompts = PromptTimes(graph, machine, max_tokens)

    @cached_property
    def knots(self) -> NDArray[np.int64]:
        """Contexts between which a decode's time is taken as straight: where a window ends it turns."""
        even = np.geomspace(1, self._max_context, KNOTS).astype(np.int64) - 1
        ends = {end for op in self._decodes for end in getattr(op, "bends", lambda _: ())(self._max_context)}
        stairs = {k * tile - before for tile in TILES for k in range(1, STAIRS) for before in (0, 1)}
        return np.unique([*even.tolist(), *ends, *(at for at in stairs if at < self._max_context)])

    def by_rows(self, of: str, rows: Floats) -> Times:
        """Operators that follow a step's `tokens` or its `logit_rows`, at so many."""
        found = [("", np.zeros_like(rows))]
        for op in self._graph.ops:
            size = rows_of(op)
            if size is None and of == "tokens" and part_of(op) is None:  # runs in every step, whatever its size
                size = TOKENS
            if size is not None and size.of == of:
                found.append((op.name, self._machine.op_seconds(op, _with_rows(rows, size))))
        return found

    def decode(self, first: int) -> Times:
        """Operators that follow the decodes, of `BLOCK` numbers of them from `first` on (a row each), at the knots of
        their mean context."""
        if first not in self._at_knots:
            shape = (BLOCK, self.knots.size)
            sequences = np.repeat(np.arange(first, first + BLOCK, dtype=float), self.knots.size)
            batch = Batch.decode(sequences, np.tile(self.knots, BLOCK))
            priced = [(op.name, self._machine.op_seconds(op, batch).reshape(shape)) for op in self._decodes]
            self._at_knots[first] = [("", np.zeros(shape)), *priced]
        return self._at_knots[first]


def _with_rows(batch_rows: Floats, rows: Rows) -> Batch:
    """A batch in which only one figure is set, for operators that depend on nothing else."""
    zero = np.zeros_like(batch_rows)
    tokens, logits = (batch_rows, zero) if rows.of == "tokens" else (zero, batch_rows)
    return Batch(zero, zero, zero, tokens, zero, zero, logits)
