"""What one step of an engine takes: the only pricer of steps, and the seam to the simulator.

`StepModel.price` gives every operator and the host a line; `StepModel.table` is the same compiled for a simulator,
which calls it a million times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.draws import normals
from gnomon.cost.host import HostModel
from gnomon.cost.lines import blurred, bound_of, host_line, operator_line
from gnomon.cost.machine import Machine
from gnomon.graph import Graph
from gnomon.graph.ops import Op
from gnomon.graph.phases import is_padded
from gnomon.spec import Batch, Estimate, Provenance
from gnomon.spec.answers import OperatorTime

if TYPE_CHECKING:  # a prediction compiles no table
    from gnomon.cost.table import TableStepCost


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Seconds of a decode step over the mean number of cached tokens per sequence.

    `context` holds whole, rising numbers starting at 0; between two of them the time is linear, and
    the last slope continues beyond them.
    """

    context: NDArray[np.int64]
    seconds: NDArray[np.float64]


class StepCost(Protocol):
    """Seconds of a step, padding included."""

    def decode_curve(self, sequences: int) -> Curve:
        """The curve of steps in which `sequences` requests each make one token: one after another, so
        the larger of what device and host need."""

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        """Device seconds of a step with prompt chunks (new tokens, tokens cached before them) beside
        `decodes` decodes whose cached tokens sum to `decode_context`. `chunks` is never empty."""

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        """Host seconds to prepare and launch such a step of so many tokens, sequences and, among them, prompts.
        They run while the device works on the step before; only then do the outputs of that one leave the engine."""


@dataclass(frozen=True, kw_only=True)
class StepPrice:
    """Steps of one rank, priced: a line for each operator, what the host needs, and what steps wait for beside."""

    machine: Machine
    operators: tuple[OperatorTime, ...]
    host_s: Estimate
    """What the host needs for all of them: it runs ahead, so only what goes beyond the device's time is exposed."""
    gap_s: Estimate
    """What the device idles between them in any case."""
    waits: tuple[OperatorTime, ...] = ()
    host_name: str = "engine"

    @cached_property
    def host(self) -> OperatorTime:
        """The host's line: the gaps, or what it needs beyond the device's time."""
        device = Estimate.total([one.time_s for one in self.operators])
        value = max(self.host_s.value - device.value, self.gap_s.value)
        draws = np.maximum(self.host_s.draws - device.draws, self.gap_s.draws)
        return host_line(self.host_name, Estimate(value, draws, Provenance.FITTED, self.host_s.source))

    @cached_property
    def lines(self) -> tuple[OperatorTime, ...]:
        """All that takes time, the slowest first."""
        found = (one for one in (*self.operators, self.host, *self.waits) if one.time_s.value > 0)
        return tuple(sorted(found, key=lambda one: -one.time_s.value))

    @cached_property
    def time_s(self) -> Estimate:
        return Estimate.total([one.time_s for one in (*self.operators, self.host, *self.waits)])

    @property
    def flops(self) -> float:
        return sum(one.flops for one in self.operators)

    @property
    def bytes(self) -> float:
        return sum(one.bytes for one in self.operators)

    @property
    def joules(self) -> Estimate:
        """Energy of one rank that is busy all the time."""
        return self.time_s.map(lambda seconds: self.machine.joules(seconds, self.flops, self.bytes))

    @property
    def bound(self) -> tuple[str, float]:
        """What bounds most of the time, and its share: the host, where it needs all of it."""
        return ("host", 1.0) if self.host_s.value >= self.time_s.value * (1 - 1e-9) else bound_of(self.lines)

    def __add__(self, other: StepPrice) -> StepPrice:
        """Two prices of steps that one host launches one after the other."""
        host_s, gap_s = self.host_s + other.host_s, self.gap_s + other.gap_s
        ops, waits = (*self.operators, *other.operators), (*self.waits, *other.waits)
        return replace(self, operators=ops, host_s=host_s, gap_s=gap_s, waits=waits)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """The operators of a step on one rank, the machine that prices them and the host that launches them."""

    graph: Graph
    machine: Machine
    host: HostModel
    spread: float = 0.0
    """What all operators may be off by together, beyond their families' own errors (log)."""

    def price(self, steps: Batch) -> StepPrice:
        """These steps one after the other. What follows sequences skips a step's padding."""
        run = self.host.steps(steps)
        priced = (self._line(op, run.padded if is_padded(op) else steps, steps) for op in self.graph.ops)
        lines = [one for one in priced if one.time_s.value > 0]
        if self.spread:
            shared = np.exp(self.spread * normals("networks"))
            lines = [blurred(one, shared) for one in lines]
        host_s, gap_s = (self.host.estimate(seconds) for seconds in (run.host_s, run.gap_s))
        return StepPrice(machine=self.machine, operators=tuple(lines), host_s=host_s, gap_s=gap_s)

    def _line(self, op: Op, run: Batch, steps: Batch) -> OperatorTime:
        each = self.machine.op_seconds(op, run)
        draws = self.machine.op_draws(op, run, each)
        return operator_line(self.machine, op, steps, float(each.sum()), draws=draws)

    def table(self, *, max_context: int, max_tokens: int, max_sequences: int) -> TableStepCost:
        """The tables of steps of up to so many tokens and sequences, with contexts up to `max_context`."""
        from gnomon.cost.table import TableStepCost

        return TableStepCost(self, max_context=max_context, max_tokens=max_tokens, max_sequences=max_sequences)


Piece = tuple[StepModel, Batch]
"""A part of a network, and the steps that it runs."""
