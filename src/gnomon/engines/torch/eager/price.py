"""Seconds of a traced step's kernels on a machine, with their draws, at the clock that the power limit allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.cost import tapes
from gnomon.cost.clock import ATTENTION, BURST, slowdown
from gnomon.cost.machine import Machine, priced_dtype
from gnomon.engines.torch.eager.lower import LaunchedKernel, Lowered
from gnomon.graph.ops import Convolution, Gemm, Op, SequenceAttention
from gnomon.spec import Batch, Estimate, Provenance
from gnomon.spec.estimate import joined
from gnomon.spec.workload import Floats

ONE = Batch.prefill([1], 1)
"""Sizes of traced operators follow no batch."""
COMPUTE = (Gemm, Convolution, SequenceAttention)
SPREAD = 0.12
"""What all kernels of a module share beyond their families' own errors: kernels whose pace is that of their like,
libraries' choices. An estimate, until modules are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerCost:
    """Some kernels together."""

    time_s: Estimate
    bound: str
    kind: str
    kernels: int
    flops: float
    bytes: float


@dataclass(frozen=True)
class PricedStep:
    """A lowered step on a machine."""

    lowered: Lowered
    machine: Machine
    times: Mapping[Op, Floats]
    stretch: float

    def seconds(self, op: Op) -> float:
        once = float(self.times[op][0])
        return once * self.stretch if isinstance(op, COMPUTE) else once

    @property
    def total(self) -> EagerCost:
        """All kernels, one after the other."""
        return next(iter(self.groups(lambda *_: "").values()))

    @property
    def arithmetic(self) -> str:
        """The number format of most FLOPs."""
        flops: dict[str, float] = {}
        for op in _ops(self.lowered):
            flops[op.dtype] = flops.get(op.dtype, 0.0) + op.count * float(op.flops(ONE)[0])
        return max(flops, key=lambda name: flops[name])

    def groups(self, key: Callable[[LaunchedKernel, Op], str]) -> dict[str, EagerCost]:
        """Kernels by what `key` says of each, the slowest group first."""
        members: dict[str, dict[Op, int]] = {}
        for one in self.lowered.launched:
            for op in one.ops:
                group = members.setdefault(key(one, op), {})
                group[op] = group.get(op, 0) + 1
        found = {name: self._cost(ops) for name, ops in members.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1].time_s.value))

    def _cost(self, ops: Mapping[Op, int]) -> EagerCost:
        value, draws, flops, moved, kernels = 0.0, np.zeros(1), 0.0, 0.0, 0
        shares: dict[str, float] = {}
        kinds: dict[str, float] = {}
        sources: dict[str, Provenance] = {}
        for op, runs in ops.items():
            seconds, dtype = self.seconds(op) * runs, priced_dtype(op)
            value += seconds
            draws = draws + seconds * self._factors(op)
            work, size = (runs * op.count * float(figure(ONE)[0]) for figure in (op.flops, op.bytes))
            flops, moved, kernels = flops + work, moved + size, kernels + runs * op.count
            spent = (np.array([work]), np.array([size]), np.array([seconds]))
            bound = str(self.machine.bound(*spent, op.kind, dtype, runs * op.count)[0])
            shares[bound] = shares.get(bound, 0.0) + seconds
            kinds[op.kind] = kinds.get(op.kind, 0.0) + seconds
            family = self.machine.evidence(op.kind, dtype)
            sources[family.source] = family.provenance
        kind = max(kinds, key=lambda name: kinds[name])
        time_s = Estimate(value, draws, Provenance.weakest(*sources.values()), joined(sources))
        bound_by = max(shares, key=lambda name: shares[name])
        return EagerCost(time_s=time_s, bound=bound_by, kind=kind, kernels=kernels, flops=flops, bytes=moved)

    def _factors(self, op: Op) -> Floats:
        """The same kernel errs the same way wherever it runs."""
        return self.machine.factors(f"{op.name} {_sizes(op)}", op.kind, priced_dtype(op))


def priced(lowered: Lowered, machine: Machine, *, idle_s: Callable[[float], float], sustained: bool) -> PricedStep:
    """Every kernel once. `idle_s` says how long the chip waits for a host beside so many seconds of kernels; a step
    that goes on for seconds is slowed where it would draw more than the board may."""
    times = tapes.price((op for one in lowered.launched for op in one.ops), machine, ONE)
    stretch = _stretch(lowered, machine, times, idle_s) if sustained else 1.0
    return PricedStep(lowered, machine, times, stretch)


def _stretch(lowered: Lowered, machine: Machine, times: Mapping[Op, Floats], idle_s: Callable[[float], float]) -> float:
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
