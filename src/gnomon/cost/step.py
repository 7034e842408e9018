"""What one step of an engine takes: the only pricer of steps, and the seam to the simulator.

`StepModel.price` gives every operator and the host a line; `StepModel.table` is the same compiled for a simulator,
which calls it a million times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from gnomon.cost.draws import normals
from gnomon.cost.governor import Governor
from gnomon.cost.host import HostModel
from gnomon.cost.lines import blurred, bound_of, by_name, host_line, operator_line
from gnomon.cost.machine import Machine
from gnomon.cost.overlap import Overlap, PricedOp, overlapped
from gnomon.graph import Graph
from gnomon.graph.ops import Op
from gnomon.graph.phases import is_padded, part_of
from gnomon.spec import Batch, Estimate, Provenance
from gnomon.spec.answers import OperatorTime
from gnomon.spec.workload import Floats

if TYPE_CHECKING:  # a prediction compiles no table
    from gnomon.cost.adapters import AdapterCost
    from gnomon.cost.drafting import DraftCost
    from gnomon.cost.prefetch import PrefetchCost
    from gnomon.cost.prompts import Work
    from gnomon.cost.table import TableStepCost
    from gnomon.cost.tower import TowerCost


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Seconds of a decode step over the mean number of cached tokens per sequence.

    `context` holds whole, rising numbers starting at 0; between two of them the time is linear, and
    the last slope continues beyond them.
    """

    context: NDArray[np.int64]
    seconds: NDArray[np.float64]
    clocked_s: NDArray[np.float64] | None = None
    """At full clock, the device seconds that follow the clock."""
    joules: NDArray[np.float64] | None = None
    """At full clock, beyond the chip's constant draw."""


ADAPTERS, SEQUENCES = 1 << 10, 1 << 20
"""More than one step has."""


def variant_of(adapters: int, undrafted: int = 0, images: int = 0) -> int:
    """What the cost of a step depends on beside its tokens, as one number: its LoRA adapters, the sequences in it that
    have no drafts where others do, and the images that it encodes."""
    return adapters + (undrafted + images * SEQUENCES) * ADAPTERS


def parts_of(variant: int) -> tuple[int, int, int]:
    """Adapters, sequences without drafts, and images."""
    rest, adapters = divmod(variant, ADAPTERS)
    images, undrafted = divmod(rest, SEQUENCES)
    return adapters, undrafted, images


class StepCost(Protocol):
    """Seconds and joules of a step on one chip, padding included."""

    @property
    def governor(self) -> Governor | None:
        """What lowers the clock under the power limit; without one neither clock nor joules are known."""

    def decode_curve(self, sequences: int, slowdown: float = 1.0) -> Curve:
        """The curve of steps in which `sequences` requests each make one token: one after another, so
        the larger of what device and host need. Its seconds are at a clock lower by `slowdown`."""

    def mixed(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> float:
        """Device seconds of a step with prompt chunks (new tokens, tokens cached before them) beside
        `decodes` decodes whose cached tokens sum to `decode_context`. `chunks` is never empty."""

    def mixed_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]]) -> Work:
        """`mixed`, those of its seconds that follow the clock, and joules at full clock beyond the constant draw; asked
        for where there is a governor."""

    def launch(self, tokens: int, sequences: int, prompts: int = 1) -> float:
        """Host seconds to prepare and launch such a step of so many tokens, sequences and, among them, prompts.
        They run while the device works on the step before; only then do the outputs of that one leave the engine."""

    def varied_curve(self, sequences: int, slowdown: float, variant: int) -> Curve:
        """`decode_curve` of steps of a variant (`variant_of`); asked for where it is not 0, as are the next."""

    def varied_work(self, decodes: int, decode_context: int, chunks: Sequence[tuple[int, int]], variant: int) -> Work:
        """`mixed_work` of such a step; without a governor only its seconds count."""

    def varied_launch(self, tokens: int, variant: int) -> float:
        """What that adds to `launch`."""


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
    clocked: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each operator at full clock that follow the clock, by its name."""
    dynamic_j: float | None = None
    """Joules of all operators at full clock beyond the constant draw, where they are known by operator."""
    clock_slowdown: float = 1.0
    """How much lower the clock is than the highest."""

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
        """Energy of one rank that is busy all the time; the board never draws more than its limit."""
        if self.dynamic_j is None:
            return self.time_s.map(lambda seconds: self.machine.joules(seconds, self.flops, self.bytes))
        governor = self.machine.governor
        time, dynamic_j = self.time_s, self.dynamic_j * governor.energy_share(self.clock_slowdown)
        limit_w, drawn_j = self.machine.chip.tdp_w, dynamic_j * self.machine.joule_factors
        value = min(governor.active_w * time.value + dynamic_j, limit_w * time.value)
        draws = np.minimum(governor.active_w * time.draws + drawn_j, limit_w * time.draws)
        return Estimate(value, draws, time.provenance, time.source)

    def at(self, slowdown: float) -> StepPrice:
        """The same steps, priced at full clock so far, at a clock lower by a factor. Lines of one name have one share
        that follows the clock."""
        assert self.clock_slowdown == 1.0
        seconds: dict[str, float] = {}
        for one in self.operators:
            seconds[one.op] = seconds.get(one.op, 0.0) + one.time_s.value
        more = {name: (slowdown - 1) * self.clocked.get(name, 0.0) / full for name, full in seconds.items()}
        slowed = tuple(replace(one, time_s=self._slowed(one.time_s, more[one.op])) for one in self.operators)
        return replace(self, operators=slowed, clock_slowdown=slowdown)

    def _slowed(self, time: Estimate, more: float) -> Estimate:
        draws = time.draws * (1 + more * self.machine.clock_factors)
        return Estimate(time.value * (1 + more), draws, time.provenance, time.source)

    @property
    def sustained(self) -> StepPrice:
        """The same steps at the clock that the chip keeps if it runs them without end."""
        busy_s = self.time_s.value
        clocked, watts = sum(self.clocked.values()) / busy_s, (self.dynamic_j or 0.0) / busy_s
        return self.at(self.machine.governor.slowdown(clocked, watts))

    @property
    def bound(self) -> tuple[str, float]:
        """What bounds most of the time, and its share: the host, where it needs all of it."""
        return ("host", 1.0) if self.host_s.value >= self.time_s.value * (1 - 1e-9) else bound_of(self.lines)

    def __add__(self, other: StepPrice) -> StepPrice:
        """Two prices of steps that one host launches one after the other."""
        host_s, gap_s = self.host_s + other.host_s, self.gap_s + other.gap_s
        ops, waits = (*self.operators, *other.operators), (*self.waits, *other.waits)
        known = self.dynamic_j is not None and other.dynamic_j is not None
        return replace(
            self,
            operators=ops,
            host_s=host_s,
            gap_s=gap_s,
            waits=waits,
            clocked=_both(self.clocked, other.clocked),
            dynamic_j=(self.dynamic_j or 0.0) + (other.dynamic_j or 0.0) if known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """The operators of a step on one rank, the machine that prices them and the host that launches them."""

    graph: Graph
    machine: Machine
    host: HostModel
    adapters: AdapterCost | None = None
    """What LoRA adapters add to a step of the simulator, where there are some."""
    drafting: DraftCost | None = None
    """What writes drafts that decodes verify, where there are some."""
    tower: TowerCost | None = None
    """What encodes images of prompts, where there are some."""
    prefetch: PrefetchCost | None = None
    """What copies weights from the host ahead of their layers, where they are not on the chip."""
    overlap: Overlap | None = None
    """Lanes of operators that run at the same time, where there are some; else one runs after the other."""
    spread: float = 0.0
    """What all operators may be off by together, beyond their families' own errors (log)."""

    def price(self, steps: Batch) -> StepPrice:
        """These steps one after the other. What follows sequences skips a step's padding."""
        run = self.host.steps(steps)
        lines: list[OperatorTime] = []
        clocked: dict[str, float] = {}
        layers_s = np.zeros(steps.size)
        dynamic_j, priced = 0.0, []
        for op in self.graph.ops:
            line, each, clocked_s, joules = self._line(op, run.padded if is_padded(op) else steps, steps)
            if line.time_s.value > 0:
                priced.append(PricedOp(op, line, each, clocked_s))
                dynamic_j += joules
        for op, line, each, clocked_s in priced if self.overlap is None else overlapped(self.overlap, priced):
            layers_s += each if part_of(op) != "logits" else 0.0
            lines.append(line)
            clocked[line.op] = clocked.get(line.op, 0.0) + clocked_s
        if self.overlap is not None:
            lines = by_name(lines)
        if self.prefetch is not None:
            lines += self._copied(steps, layers_s, lines)
        if self.spread:
            shared = np.exp(self.spread * normals("networks"))
            lines = [blurred(one, shared) for one in lines]
        host_s, gap_s = (self.host.estimate(seconds) for seconds in (run.host_s, run.gap_s))
        return StepPrice(
            machine=self.machine,
            operators=tuple(lines),
            host_s=host_s,
            gap_s=gap_s,
            clocked=clocked,
            dynamic_j=dynamic_j,
        )

    def _copied(self, steps: Batch, layers_s: Floats, lines: Sequence[OperatorTime]) -> list[OperatorTime]:
        """What steps wait for copies of weights; logits come after them."""
        assert self.prefetch is not None
        after = {op.name for op in self.graph.ops if part_of(op) == "logits"}
        drawn = Estimate.total([one.time_s for one in lines if one.op not in after]).draws
        found = self.prefetch.line(steps, layers_s, drawn, self.host.largest)
        return [found] if found.time_s.value > 0 else []

    def _line(self, op: Op, run: Batch, steps: Batch) -> tuple[OperatorTime, Floats, float, float]:
        """An operator's line, its seconds in each step, those in all that follow the clock, and its joules."""
        each = self.machine.op_seconds(op, run)
        draws, power = self.machine.op_draws(op, run, each), self.machine.op_power(op, run, each)
        line = operator_line(self.machine, op, steps, float(each.sum()), draws=draws)
        return line, each, float((power.clocked * each).sum()), float(power.joules.sum())

    def table(self, *, max_context: int, max_tokens: int, max_sequences: int) -> TableStepCost:
        """The tables of steps of up to so many tokens and sequences, with contexts up to `max_context`."""
        from gnomon.cost.table import TableStepCost

        return TableStepCost(self, max_context=max_context, max_tokens=max_tokens, max_sequences=max_sequences)


def _both(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in (*one, *other)}


Piece = tuple[StepModel, Batch]
"""A part of a network, and the steps that it runs."""
