"""The clock that a board keeps under its power limit, for any mix of work.

At a clock lower by a factor x ("slowdown", 1 at full clock) a kernel takes longer by its clocked share of x - 1, for
memory and links keep their own clocks, and its joules beyond the board's constant draw fall with the voltage. The
governor holds the power averaged over a short window to the limit. `python -m tools.governor_fit` fits the figures here
to clock, power and speed of 28 step loads on an H200 (2026-11-18) with the joules of that chip's profile; other chips
take them with their own data sheet and limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from gnomon.cost.clock import BURST, BUSY, FULL, LIMIT, attention_joules, narrow
from gnomon.graph.dtypes import gemm_format
from gnomon.graph.ops import Op
from gnomon.spec import Batch, Chip
from gnomon.spec.workload import Floats

WINDOW_S = 0.03
"""Time constant of the average power that the clock follows."""
SPREAD, TRANSFERRED_SPREAD = 0.2, 0.4
"""What the slowdown by the clock, beyond 1, may be off by (log): on loads kept aside, and on chips whose power figures
are another chip's; the second is an estimate."""
JOULES_SPREAD, TRANSFERRED_JOULES_SPREAD = 0.06, 0.2
"""What joules beyond the constant draw may be off by (log): the H200's watts were off by 4.1% on kinds of work kept
aside (`power_held_out` of its profile), of which some 80% are beyond the constant draw; and an estimate for chips whose
power figures are another chip's."""
STREAM = 0.87
"""Of the data sheet's bandwidth, what the fastest stream of an H200 reaches: 4.15 of 4.8 TB/s (2026-11-18)."""
LOWEST = 345 / 1980
"""The lowest clock, of the highest: the H200's at idle (2026-11-18)."""
HELD = 0.99
"""The share of its limit that a board holds, where none was measured: H200 0.987 to 0.992 on three boards."""
PREFILL = ("attention_prefill", "attention_forward", "attention_backward")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFigures:
    """How work answers to the clock."""

    clocked: float = 0.58
    """Of a kernel's time far from the memory's bandwidth, what follows the clock: an 8192-cube GEMM at 1,455 of 1,980
    MHz is 1.19 times slower, not 1.36 times."""
    clocked_attention: float = 0.642
    """The same of prefill attention."""
    memory_exponent: float = 3.513
    """How sharply the clocked share ends where a kernel nears the memory's bandwidth: 1 - (share of it) ** this."""
    voltage: float = 0.949
    """Of the joules beyond the constant draw, what falls in proportion to the clock."""
    flop: float = 1.089
    """Joules of a FLOP at full clock, of the profile's figure: an 8192-cube GEMM drew 972 W before the clock fell."""
    read_byte: float = 0.863
    """Joules of a byte that GEMMs and attention move, of the profile's figure, which is fitted to streams too."""
    elementwise_byte: float = 1.119
    """The same of elementwise kernels."""


FIGURES = ClockFigures()


class OpPower(NamedTuple):
    """Of an operator: the share of its seconds that follows the clock, and its joules at full clock beyond the board's
    constant draw."""

    clocked: Floats
    joules: Floats


class KernelWork(NamedTuple):
    """One run of a kernel at several sizes."""

    kind: str
    flops: Floats
    moved: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Governor:
    """What holds a chip to its power limit, in watts and seconds; it knows no chip."""

    limit_w: float
    """The average power that is held; infinite where the clock never falls."""
    active_w: float
    """What the chip draws while it is up, whatever it does."""
    window_s: float = WINDOW_S
    voltage: float = FIGURES.voltage
    most: float = 1 / LOWEST
    """The largest slowdown: from the highest clock to the lowest."""

    @property
    def acts(self) -> bool:
        return self.limit_w < inf

    def slowdown(self, clocked: float, watts: float) -> float:
        """At which work without end draws the limit: `clocked` is the share of its seconds that follows the clock,
        `watts` what it draws at full clock beyond the constant draw. 1 where it stays below."""
        free = self.limit_w - self.active_w
        if watts <= free:
            return 1.0
        square, linear = free * clocked, free * (1 - clocked) - watts * (1 - self.voltage)
        constant = watts * self.voltage
        root = sqrt(linear * linear + 4 * square * constant)
        if linear > 0:
            found = 2 * constant / (linear + root)
        elif root - linear >= 2 * square * self.most:
            return self.most
        else:
            found = (root - linear) / (2 * square)
        return min(max(found, 1.0), self.most)

    def energy_share(self, slowdown: float) -> float:
        """Of the joules at full clock, what the same work takes at a slower one, without the constant draw."""
        return 1 - self.voltage + self.voltage / slowdown


def governor_of(power: Mapping[str, float], chip: Chip) -> Governor:
    """The governor of a chip; one whose held share of the limit was not measured keeps its clock."""
    limit_w = power[LIMIT] * chip.tdp_w if LIMIT in power else inf
    return Governor(limit_w=limit_w, active_w=power["active_w"])


def op_power(power: Mapping[str, float], chip: Chip, op: Op, batch: Batch, seconds: Floats) -> OpPower:
    """Of one run of an operator that takes `seconds` in each of these steps."""
    work = KernelWork(op.kind, op.flops(batch), op.bytes(batch), seconds)
    return kernel_power(power, chip, work, flop_joules(power, chip, op))


def kernel_power(
    power: Mapping[str, float], chip: Chip, work: KernelWork, flop_j: float, figures: ClockFigures = FIGURES
) -> OpPower:
    """Of a kernel whose FLOPs take `flop_j` joules each in a GEMM at full clock."""
    kind, flops, moved, seconds = work
    if kind in PREFILL:
        joules = attention_joules(_burst(power, figures), chip, flops, seconds)
        joules = joules + figures.read_byte * power["j_per_byte"] * moved
        return OpPower(np.full(seconds.shape, figures.clocked_attention), joules)
    byte_j = power["j_per_byte"] * (figures.elementwise_byte if kind == "elementwise" else figures.read_byte)
    least_s = moved / (STREAM * chip.memory_bandwidth_bytes_s)
    bound = np.minimum(least_s / np.maximum(seconds, 1e-30), 1.0)
    return OpPower(
        figures.clocked * (1 - bound**figures.memory_exponent), figures.flop * flop_j * flops + byte_j * moved
    )


def flop_joules(power: Mapping[str, float], chip: Chip, op: Op) -> float:
    """Joules of a FLOP at full clock, in the format that an operator multiplies in."""
    each = power.get(BURST, power["j_per_flop"])
    if not op.kind.startswith(("gemm", "conv", "moe")):
        return each
    return each * narrow(power, chip, gemm_format(op.dtype).compute_dtype)


def _burst(power: Mapping[str, float], figures: ClockFigures) -> dict[str, float]:
    """A profile's figures with the governor's joules of a FLOP."""
    return {**power, BURST: figures.flop * power.get(BURST, power["j_per_flop"])}


def streaming_w(power: Mapping[str, float], chip: Chip) -> float:
    """What elementwise kernels at full bandwidth, such as an optimizer's, draw beyond the constant draw."""
    return FIGURES.elementwise_byte * power["j_per_byte"] * STREAM * chip.memory_bandwidth_bytes_s


def scalar_attention_joules(power: Mapping[str, float], chip: Chip) -> tuple[float, float, float]:
    """Of prefill attention, as `attention_joules` has it: joules of a second, of a FLOP and of a byte."""
    power, byte_j = _burst(power, FIGURES), FIGURES.read_byte * power["j_per_byte"]
    each = power[BURST]
    if BUSY not in power:
        return 0.0, float(attention_joules(power, chip, 1.0, 0.0)), byte_j
    return power[BUSY], max(each - power[BUSY] / (FULL * chip.rate(chip.half)), 0.0), byte_j
