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
from gnomon.cost.governor import FIGURES, scalar_attention_joules
from gnomon.cost.machine import Machine
from gnomon.cost.residual import Residual
from gnomon.graph import Attention, Graph
from gnomon.graph.dtypes import width
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
    """Seconds of one operator at several sizes, what no draw of them goes below, the share of them that follows the
    clock, and joules at full clock."""

    name: str
    seconds: Floats
    floor: Floats
    clocked: Floats
    joules: Floats


Times = list[OpTime]
Work = tuple[float, float, float]
"""Of a step at full clock: seconds, those of them that follow the clock, and joules beyond the constant draw."""


def timed(machine: Machine, op: Op, batch: Batch) -> OpTime:
    """An operator in each of these steps."""
    seconds = machine.op_seconds(op, batch)
    return OpTime(op.name, seconds, machine.op_floor(op, batch, seconds), *machine.op_power(op, batch, seconds))


def summed(times: Times, factors: Mapping[str, float]) -> Floats:
    """Of all operators together, under the factors of one draw: a row of seconds, one of those that follow the clock,
    and one of joules."""
    each = [_drawn(one, factors) for one in times]
    clocked = [one.clocked * seconds for one, seconds in zip(times, each, strict=True)]
    return np.stack([sum(each), sum(clocked), sum(one.joules for one in times)])


def _drawn(one: OpTime, factors: Mapping[str, float]) -> Floats:
    return np.maximum(one.seconds * factors.get(one.name, 1.0), one.floor) if factors else one.seconds


ScalarJoules = Callable[[float, float, float, float], float]
"""Joules of one run by its seconds, new tokens, pairs and tokens attended to."""
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
        self.plain_joules = [_joules(op, machine) for op in plain]
        self.windowed: dict[Window, list[tuple[str, int, ScalarPrefill, ScalarJoules]]] = {}
        for op in ops:
            if isinstance(op, Attention) and op.window:
                self.windowed.setdefault(op.window, []).append(
                    (op.name, op.count, _priced(op, machine), _joules(op, machine))
                )
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
        return rows.tolist(), [timed(self.machine, op, batch) for op in ops if _figure(op) == of]


class PromptCost:
    """Work of what follows a step's prompts, each operator's seconds multiplied by its factor."""

    def __init__(self, times: PromptTimes, factors: Mapping[str, float]) -> None:
        self._machine, self._factors, self._others = times.machine, factors, times.others
        self._plain_s, self._plain_floor_s = times.plain_s, times.plain_floor_s
        self._plain = [
            (count, factors.get(name, 1.0), joules)
            for (name, count, _), joules in zip(times.plain, times.plain_joules, strict=True)
        ]
        self._windowed = {
            window: [(count, factors.get(name, 1.0), one, joules) for name, count, one, joules in priced]
            for window, priced in times.windowed.items()
        }
        self._tables = {of: _between(*table, factors) for of, table in times.tables.items()}
        self._known: dict[Sums, Work] = {}

    def work(self, chunks: Sequence[tuple[int, int]], new: int, pairs: int, read: int) -> Work:
        """Of chunks (new tokens, cached tokens), with the sums of their tokens, pairs and tokens attended to."""
        if self._windowed:
            return added(self._by_sums((len(chunks), new, pairs, read)), self._in_windows(chunks, new, pairs))
        sums = (len(chunks), new, pairs, read)
        found = self._known.get(sums)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[sums] = self._by_sums(sums)
        return found

    def _by_sums(self, sums: Sums) -> Work:
        _, new, pairs, read = sums
        once, seconds, joules = self._plain_s(sums), 0.0, 0.0
        for one_s, (count, factor, joules_of) in zip(once, self._plain, strict=True):
            seconds += count * factor * one_s
            joules += count * joules_of(one_s, new, pairs, read)
        if self._factors:
            drawn = (count * factor * one_s for one_s, (count, factor, _) in zip(once, self._plain, strict=True))
            seconds = sum(map(max, drawn, self._plain_floor_s(sums)))
        found = (seconds, FIGURES.clocked_attention * seconds, joules)
        if self._tables:
            figures = {"prefill_tokens": new, "prefill_context": read, "cached": read - new}
            for of, table in self._tables.items():
                found = added(found, table(figures[of]))
        if self._others:
            batch = _batch(*sums)
            times = [timed(self._machine, op, batch) for op in self._others]
            found = added(found, tuple(summed(times, self._factors)[:, 0].tolist()))
        return found

    def _in_windows(self, chunks: Sequence[tuple[int, int]], new: int, pairs: int) -> Work:
        seconds = joules = 0.0
        for window, priced in self._windowed.items():
            seen, near = window.in_chunks(chunks)
            for count, factor, one, of in priced:
                once = one(len(chunks), new, seen, near, pairs - seen)
                seconds += count * factor * once
                joules += count * of(once, new, seen, near)
        return seconds, FIGURES.clocked_attention * seconds, joules


def added(one: Work, other: Work) -> Work:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _remembered(known: dict[Sums, list[float]], sums: Sums, made: Callable[[], list[float]]) -> list[float]:
    found = known.get(sums)
    if found is None:
        if len(known) >= MOST_KNOWN:
            known.clear()
        found = known[sums] = made()
    return found


def _between(x: list[float], times: Times, factors: Mapping[str, float]) -> Callable[[float], Work]:
    """Straight between the rows of a table; beyond them its last slope goes on."""
    columns = summed(times, factors).tolist()

    def work(size: float) -> Work:
        if size <= 0:
            return 0.0, 0.0, 0.0
        i = min(max(bisect_left(x, size), 1), len(x) - 1)
        share = (size - x[i - 1]) / (x[i] - x[i - 1])
        seconds, clocked, joules = (y[i - 1] + (y[i] - y[i - 1]) * share for y in columns)
        return seconds, clocked, joules

    return work


def _joules(op: Attention, machine: Machine) -> ScalarJoules:
    """Joules of one run of prefill attention, in plain floats, as `op_power` has them for many."""
    of_second, of_flop, of_byte = scalar_attention_joules(machine.profile.power, machine.chip)
    channels = op.head_dim + op.values
    of_pair = of_flop * 2.0 * op.heads * channels
    of_cached = of_byte * op.kv_heads * channels * width(op.kv_dtype)
    of_token = of_byte * op.heads * channels * width(op.dtype)

    def joules(seconds: float, tokens: float, pairs: float, context: float) -> float:
        return of_second * seconds + of_pair * pairs + of_cached * context + of_token * tokens

    return joules


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
