"""Seconds of a traced step's kernels on a machine, with draws, at the clock that the power limit sustains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.cost import tapes
from gnomon.cost.clock import ATTENTION, BURST, slowdown
from gnomon.cost.draws import normals
from gnomon.cost.host import HostModel
from gnomon.cost.lines import blurred, operator_line, sum_line
from gnomon.cost.machine import Machine, priced_dtype
from gnomon.cost.step import StepPrice
from gnomon.engines.torch.eager.lower import LaunchedKernel, Lowered
from gnomon.graph.ops import Convolution, Gemm, Op, SequenceAttention
from gnomon.spec import Batch
from gnomon.spec.answers import OperatorTime
from gnomon.spec.workload import Floats

ONE = Batch.prefill([1], 1)
"""Sizes of traced operators do not depend on a batch."""
COMPUTE = (Gemm, Convolution, SequenceAttention)
SPREAD = 0.12
"""Log standard deviation of an error that all kernels of a module share: efficiencies transferred from similar kernels,
libraries' choices. An estimate, until modules are measured."""


@dataclass(frozen=True)
class PricedStep:
    """A lowered step on a machine."""

    lowered: Lowered
    machine: Machine
    times: Mapping[Op, Floats]
    clock_slowdown: float

    def seconds(self, op: Op) -> float:
        once = float(self.times[op][0])
        return once * self.clock_slowdown if isinstance(op, COMPUTE) else once

    @property
    def arithmetic(self) -> str:
        """The number format of most FLOPs."""
        flops: dict[str, float] = {}
        for op in _ops(self.lowered):
            flops[op.dtype] = flops.get(op.dtype, 0.0) + op.count * float(op.flops(ONE)[0])
        return max(flops, key=lambda name: flops[name])

    def price(self, host: HostModel, key: Callable[[LaunchedKernel, Op], str]) -> StepPrice:
        """The step's price, with kernels grouped by `key`, and the host that launches them."""
        shared = np.exp(SPREAD * normals("module"))
        return StepPrice(
            machine=self.machine,
            operators=tuple(blurred(line, shared) for line in self.groups(key).values()),
            host_s=host.estimate(host.eager_launch_s),
            gap_s=host.estimate(0.0),
            host_name="waiting for the host",
        )

    def groups(self, key: Callable[[LaunchedKernel, Op], str]) -> dict[str, OperatorTime]:
        """Kernels grouped by `key`, the slowest group first."""
        members: dict[str, dict[Op, int]] = {}
        for one in self.lowered.launched:
            for op in one.ops:
                group = members.setdefault(key(one, op), {})
                group[op] = group.get(op, 0) + 1
        found = {
            name: sum_line(name, [self._line(op, runs) for op, runs in ops.items()]) for name, ops in members.items()
        }
        return dict(sorted(found.items(), key=lambda item: -item[1].time_s.value))

    def _line(self, op: Op, runs: int) -> OperatorTime:
        """The line of a kernel; equal kernels share their draws."""
        seconds = self.seconds(op) * runs
        factors = self.machine.factors(f"{op.name} {_sizes(op)}", op.kind, priced_dtype(op))
        return operator_line(self.machine, op, ONE, seconds, draws=seconds * factors, runs=runs)


def priced(lowered: Lowered, machine: Machine, *, idle_s: Callable[[float], float], sustained: bool) -> PricedStep:
    """Price every kernel once. `idle_s` gives the seconds that the chip waits for the host, by seconds of kernels;
    `sustained` steps are slowed where they would exceed the power limit."""
    times = tapes.price((op for one in lowered.launched for op in one.ops), machine, ONE)
    slower = _slowdown(lowered, machine, times, idle_s) if sustained else 1.0
    return PricedStep(lowered, machine, times, slower)


def _slowdown(
    lowered: Lowered, machine: Machine, times: Mapping[Op, Floats], idle_s: Callable[[float], float]
) -> float:
    power = machine.profile.power
    byte_j, flop_j = power["j_per_byte"], power.get(BURST, power["j_per_flop"])
    seconds, joules = np.zeros(2), np.zeros(2)
    for op in _ops(lowered):
        place = 0 if isinstance(op, COMPUTE) else 1
        each = power.get(ATTENTION, 1.0) if isinstance(op, SequenceAttention) else 1.0
        seconds[place] += float(times[op][0])
        joules[place] += op.count * float(flop_j * each * op.flops(ONE)[0] + byte_j * op.bytes(ONE)[0])
    found = slowdown(
        power,
        machine.chip,
        compute_s=seconds[:1],
        compute_j=joules[:1],
        other_s=seconds[1:] + idle_s(float(seconds.sum())),
        other_j=joules[1:],
    )
    return float(found[0])


def _ops(lowered: Lowered) -> Iterable[Op]:
    return (op for one in lowered.launched for op in one.ops)


def _sizes(op: Any) -> str:
    if isinstance(op, (Gemm, Convolution)):
        return f"{op.m:g}x{op.n:g}x{op.k:g}"
    if isinstance(op, SequenceAttention):
        return f"{op.sequences}x{op.heads}x{op.queries}x{op.keys}x{op.head_dim}"
    return ""
