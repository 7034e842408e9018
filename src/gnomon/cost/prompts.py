"""What the prompts of a step take beside its tokens: attention, the up-projection of latents, scans.

Called for every step of a simulation with prompts in it, so that plain attention is priced in plain floats and
GEMMs are read off a table.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gnomon.cost.attention import ScalarPrefill, scalar_prefill
from gnomon.cost.machine import Machine
from gnomon.cost.residual import Residual
from gnomon.graph import Attention, Graph
from gnomon.graph.ops import Op, Rows
from gnomon.graph.phases import part_of, rows_of
from gnomon.graph.windows import Window
from gnomon.spec import Batch
from gnomon.spec.workload import Floats

TILE, COARSE = 16, 96
"""Rows of the smallest tile of a GEMM, at both ends of which a table has an entry up to a step's most tokens;
and how many it has beyond them, each larger by the same factor."""
REACH = 64
"""Times a step's most tokens that the table goes; beyond, it is extrapolated."""
MOST_KNOWN = 100_000
"""Sums of prompts whose seconds are remembered: prompts of one length repeat."""


class OpTime(NamedTuple):
    """Seconds of one operator at several sizes, and what no draw of them goes below."""

    name: str
    seconds: Floats
    floor: Floats


Times = list[OpTime]


def summed(times: Times, factors: Mapping[str, float]) -> Floats:
    """Seconds of all operators together, under the factors of one draw."""
    if not factors:
        return np.asarray(sum(one.seconds for one in times))
    return np.asarray(sum(np.maximum(one.seconds * factors.get(one.name, 1.0), one.floor) for one in times))


Sums = tuple[int, int, int, int]
"""Of a step's prompts: how many, their new tokens, pairs, and tokens attended to."""
Table = tuple[list[float], Times]
"""Rows, and the seconds of each operator there."""


class PromptTimes:
    """Operators of a graph that follow a step's prompts, priced once for all draws of their times."""

    def __init__(self, graph: Graph, machine: Machine, max_tokens: int) -> None:
        self.machine = machine
        ops = [op for op in graph.ops if part_of(op) == "prefill"]
        plain = [op for op in ops if isinstance(op, Attention) and not op.window]
        self.plain = [(op.name, op.count, _priced(op, machine)) for op in plain]
        self.windowed: dict[Window, list[tuple[str, int, ScalarPrefill]]] = {}
        for op in ops:
            if isinstance(op, Attention) and op.window:
                self.windowed.setdefault(op.window, []).append((op.name, op.count, _priced(op, machine)))
        by_rows = [op for op in ops if rows_of(op) is not None]
        self.tables = {of: self._table(of, by_rows, max_tokens) for of in {_figure(op) for op in by_rows}}
        self.others = [op for op in ops if not isinstance(op, Attention) and op not in by_rows]
        self._plain = plain
        self._known: dict[Sums, list[float]] = {}
        self._floors: dict[Sums, list[float]] = {}

    def plain_s(self, sums: Sums) -> list[float]:
        """Seconds of one run of each plain attention, remembered for all draws."""
        return _remembered(self._known, sums, lambda: [one(*sums) for _, _, one in self.plain])

    def plain_floor_s(self, sums: Sums) -> list[float]:
        """What no draw of all runs of each plain attention goes below, remembered for all draws."""

        def floors() -> list[float]:
            batch, known = _batch(*sums), zip(self._plain, self.plain_s(sums), strict=True)
            return [float(self.machine.op_floor(op, batch, op.count * np.array([s]))[0]) for op, s in known]

        return _remembered(self._floors, sums, floors)

    def _table(self, of: str, ops: Sequence[Op], max_tokens: int) -> Table:
        ends = np.arange(TILE, max_tokens + TILE, TILE)
        coarse = np.geomspace(ends[-1], REACH * ends[-1], COARSE).astype(int)
        rows = np.unique([1, *ends, *(ends + 1), *coarse]).astype(float)
        zero = np.zeros_like(rows)
        tokens, context = (zero, rows) if of == "cached" else (rows, rows)
        batch = Batch(zero, zero, zero, tokens, zero, context, zero)
        priced = ((op, self.machine.op_seconds(op, batch)) for op in ops if _figure(op) == of)
        return rows.tolist(), [OpTime(op.name, s, self.machine.op_floor(op, batch, s)) for op, s in priced]


class PromptCost:
    """Seconds of what follows a step's prompts, each operator's multiplied by its factor."""

    def __init__(self, times: PromptTimes, factors: Mapping[str, float]) -> None:
        self._machine, self._factors, self._others = times.machine, factors, times.others
        self._plain_s, self._plain_floor_s = times.plain_s, times.plain_floor_s
        self._plain = [count * factors.get(name, 1.0) for name, count, _ in times.plain]
        self._windowed = {
            window: [(count * factors.get(name, 1.0), one) for name, count, one in priced]
            for window, priced in times.windowed.items()
        }
        self._tables = {of: _between(*table, factors) for of, table in times.tables.items()}
        self._known: dict[Sums, float] = {}

    def seconds(self, chunks: Sequence[tuple[int, int]], new: int, pairs: int, read: int) -> float:
        """Of chunks (new tokens, cached tokens), with the sums of their tokens, pairs and tokens attended to."""
        if self._windowed:
            return self._by_sums((len(chunks), new, pairs, read)) + self._in_windows(chunks, new, pairs)
        sums = (len(chunks), new, pairs, read)
        found = self._known.get(sums)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[sums] = self._by_sums(sums)
        return found

    def _by_sums(self, sums: Sums) -> float:
        total, (_, new, _, read) = 0.0, sums
        drawn = [weight * seconds for weight, seconds in zip(self._plain, self._plain_s(sums), strict=True)]
        total += sum(map(max, drawn, self._plain_floor_s(sums)) if self._factors else drawn)
        figures = {"prefill_tokens": new, "prefill_context": read, "cached": read - new}
        for of, table in self._tables.items():
            total += table(figures[of])
        if self._others:
            batch = _batch(*sums)
            total += sum(self._seconds(op, batch)[0] for op in self._others)
        return float(total)

    def _in_windows(self, chunks: Sequence[tuple[int, int]], new: int, pairs: int) -> float:
        total = 0.0
        for window, priced in self._windowed.items():
            seen, near = window.in_chunks(chunks)
            total += sum(weight * one(len(chunks), new, seen, near, pairs - seen) for weight, one in priced)
        return total

    def _seconds(self, op: Op, batch: Batch) -> Floats:
        seconds = self._machine.op_seconds(op, batch)
        if not self._factors:
            return seconds
        floor = self._machine.op_floor(op, batch, seconds)
        return np.maximum(seconds * self._factors.get(op.name, 1.0), floor)


def _remembered(known: dict[Sums, list[float]], sums: Sums, made: Callable[[], list[float]]) -> list[float]:
    found = known.get(sums)
    if found is None:
        if len(known) >= MOST_KNOWN:
            known.clear()
        found = known[sums] = made()
    return found


def _between(x: list[float], times: Times, factors: Mapping[str, float]) -> Callable[[float], float]:
    """Straight between the rows of a table; beyond them its last slope goes on."""
    y = summed(times, factors).tolist()

    def seconds(size: float) -> float:
        if size <= 0:
            return 0.0
        i = min(max(bisect_left(x, size), 1), len(x) - 1)
        return float(y[i - 1] + (y[i] - y[i - 1]) * (size - x[i - 1]) / (x[i] - x[i - 1]))

    return seconds


def _priced(op: Attention, machine: Machine) -> ScalarPrefill:
    family = machine.evidence(op.kind, op.kv_dtype)
    one = scalar_prefill(op, machine.chip, family.coefficients)
    return _with_residual(op, one, family.residual) if family.residual else one


def _with_residual(op: Attention, one: ScalarPrefill, residual: Residual) -> ScalarPrefill:
    """With what the formula leaves over; `Machine.seconds` prices many at once the same way, but for the bound of the
    data sheet, which no prompt reaches."""
    known = {"heads": float(op.heads), "kv_heads": float(op.kv_heads), "head_dim": float(op.head_dim)}
    left = residual.at(known)

    def seconds(n: float, tokens: float, pairs: float, context: float, beyond: float = 0.0) -> float:
        sums = {**known, "sequences": n, "tokens": tokens, "pairs": pairs, "context": context}
        return one(n, tokens, pairs, context, beyond) * left.one(sums)

    return seconds


def _figure(op: Op) -> str:
    rows = rows_of(op)
    assert isinstance(rows, Rows)
    return rows.of


def _batch(n: int, new: int, pairs: int, read: int) -> Batch:
    zero = np.zeros(1)
    sums = [np.array([float(figure)]) for figure in (n, new, pairs, read)]
    return Batch(*(zero, zero, *sums, zero))
