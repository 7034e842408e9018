"""A graph on a machine, compiled into tables: what the simulator calls a million times.

Dense operators depend on the number of tokens alone, logits on the rows sampled, decodes on the sequences and
their mean context. Each becomes a table or a curve once; a step is then a few look-ups, and what its prompts take
(`gnomon.cost.prompts`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.machine import Machine
from gnomon.cost.prompts import PromptCost
from gnomon.cost.step import Curve
from gnomon.graph import Graph
from gnomon.graph.ops import TOKENS, Op, Rows
from gnomon.graph.phases import part_of, rows_of
from gnomon.spec import Batch

GRAIN = 32
"""Above the captured sizes dense operators are tabulated every so many tokens, rounded up."""
TILES, STAIRS = (128, 160), 9
"""Keys that a decode meets at a time, in 16 bits and in eight: its time rises by a tile, and the first ones show."""
KNOTS = 48
"""Knots of a decode curve, spread evenly in the logarithm; see the test that bounds the error they leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """What the engine adds to the device's own work."""

    decode: Callable[[int], float]
    """Seconds between two decode steps of so many sequences that the host needs at least."""
    captured_launch_s: float
    """To prepare and launch a step with prompts, from captured pieces."""
    eager_launch_s: float
    """The same for a step larger than any captured one."""
    gap: Callable[[int], float]
    """Seconds the device idles between two steps of so many sequences."""
    captured: tuple[int, ...]
    """Token counts with a captured graph, rising; a smaller step is padded up to the next."""


def _with_rows(batch_rows: NDArray[np.float64], rows: Rows) -> Batch:
    """A batch in which only one figure is set, for operators that depend on nothing else."""
    zero = np.zeros_like(batch_rows)
    tokens, logits = (batch_rows, zero) if rows.of == "tokens" else (zero, batch_rows)
    return Batch(zero, zero, zero, tokens, zero, zero, logits)


@dataclass(slots=True)
class TableStepCost:
    """The StepCost of an engine. `factors` multiplies each operator's time: one draw, or nothing."""

    graph: Graph
    machine: Machine
    host: HostCost
    max_context: int
    max_tokens: int
    max_sequences: int
    factors: dict[str, float] = field(default_factory=dict)
    _tokens: list[float] = field(init=False)
    _logits: list[float] = field(init=False)
    _prompts: PromptCost = field(init=False)
    _decodes: list[Op] = field(init=False)
    _knots: NDArray[np.int64] = field(init=False)
    _curves: dict[int, Curve] = field(init=False, default_factory=dict)
    _lists: dict[int, tuple[list[int], list[float]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        edge = self.host.captured[-1] if self.host.captured else 0
        grid = [*self.host.captured, *range(edge + GRAIN, self.max_tokens + GRAIN, GRAIN)]
        sizes = np.array([0, *grid], float)
        self._tokens = [0.0, *self._sum("tokens", sizes[1:]).tolist()]
        self._logits = [0.0, *self._sum("logit_rows", np.arange(1.0, self.max_sequences + 1)).tolist()]
        self._prompts = PromptCost(self.graph, self.machine, self.factors, self.max_tokens)
        self._decodes = [op for op in self.graph.ops if part_of(op) == "decode"]
        self._knots = self._bends()

    def _bends(self) -> NDArray[np.int64]:
        """Contexts between which a decode's time is taken as straight: where a window ends it turns."""
        even = np.geomspace(1, self.max_context, KNOTS).astype(np.int64) - 1
        ends = {end for op in self._decodes for end in getattr(op, "bends", lambda _: ())(self.max_context)}
        stairs = {k * tile - before for tile in TILES for k in range(1, STAIRS) for before in (0, 1)}
        return np.unique([*even.tolist(), *ends, *(at for at in stairs if at < self.max_context)])

    def under(self, host: HostCost) -> TableStepCost:
        """The same operators with another engine's share; the tables are not made again."""
        other = copy(self)
        other.host, other._curves = host, {}
        return other

    def _sum(self, of: str, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros_like(rows)
        for op in self.graph.ops:
            size = rows_of(op)
            if size is None and of == "tokens" and part_of(op) is None:  # runs in every step, whatever its size
                size = TOKENS
            if size is not None and size.of == of:
                total += self.machine.op_seconds(op, _with_rows(rows, size)) * self.factors.get(op.name, 1.0)
        return total

    def dense_s(self, tokens: int) -> float:
        """Device seconds of everything that depends on the step's tokens alone, padding included."""
        captured = self.host.captured
        if captured and tokens <= captured[-1]:
            return self._tokens[1 + bisect_left(captured, tokens)]
        edge = captured[-1] if captured else 0
        return self._tokens[len(captured) + -(-(tokens - edge) // GRAIN)]

    def decode_curve(self, sequences: int) -> Curve:
        curve = self._curves.get(sequences)
        if curve is None:
            curve = self._curves[sequences] = self._curve(sequences)
        return curve

    def _curve(self, sequences: int) -> Curve:
        context = self._knots
        fixed = self.dense_s(sequences) + self._logits[sequences] + self.host.gap(sequences)
        seconds = self._decode_attention(sequences, context) + fixed
        return Curve(context, np.maximum(seconds, self._decode_host(sequences)))

    def _decode_host(self, sequences: int) -> float:
        """A batch larger than any captured one is launched operator by operator."""
        captured = self.host.captured
        least = self.host.decode(sequences)
        return least if captured and sequences <= captured[-1] else max(least, self.host.eager_launch_s)

    def _decode_attention(self, sequences: int, context: NDArray[np.int64]) -> NDArray[np.float64]:
        batch = Batch.decode(np.full(context.size, float(sequences)), context)
        parts = [self.machine.op_seconds(op, batch) * self.factors.get(op.name, 1.0) for op in self._decodes]
        return np.asarray(np.sum(parts, axis=0))

    def _attention_at(self, sequences: int, mean: float) -> float:
        """What decodes alone take, read off the same knots."""
        knots = self._lists.get(sequences)
        if knots is None:
            knots = (self._knots.tolist(), self._decode_attention(sequences, self._knots).tolist())
            self._lists[sequences] = knots
        x, y = knots
        i = min(max(bisect_left(x, mean), 1), len(x) - 1)
        return y[i - 1] + (y[i] - y[i - 1]) * (mean - x[i - 1]) / (x[i] - x[i - 1])

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        new = pairs = read = 0
        for q, c in chunks:
            new += q
            pairs += q * c + q * (q + 1) // 2
            read += q + c
        sequences = decodes + len(chunks)
        device = self.dense_s(decodes + new) + self._logits[sequences] + self.host.gap(sequences)
        device += self._prompts.seconds(chunks, new, pairs, read)
        if decodes:
            device += self._attention_at(decodes, decode_context / decodes)
        return device

    def launch(self, tokens: int, sequences: int) -> float:
        captured = self.host.captured
        if captured and tokens <= captured[-1]:
            return self.host.captured_launch_s
        return self.host.eager_launch_s
