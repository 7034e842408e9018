"""Lines of a breakdown: the one place where an operator's seconds become a line with draws, bound, work and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gnomon.cost.draws import normals
from gnomon.cost.machine import Machine, priced_dtype
from gnomon.graph.ops import Op
from gnomon.spec import Batch, Estimate, Provenance
from gnomon.spec.answers import OperatorTime
from gnomon.spec.workload import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """Steps as they are without waits: of serving those of a batch, of training one of each of many plans."""

    seconds: Floats | float
    batch: Batch | None = None
    """Of serving."""
    cached_bytes: float = 0.0
    """KV cache of a rank that its sequences hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wait:
    """Seconds that steps wait for something beside their operators: of serving together, of training of each plan."""

    seconds: Floats | float
    spread: float = 0.0
    """What they may be off by (log), of serving; of training they are drawn row by row."""
    source: str = ""

    def line(self, name: str) -> OperatorTime:
        """The line of a breakdown, by the name of what is waited for."""
        seconds = float(self.seconds)
        draws = seconds * np.exp(self.spread * normals(f"wait/{name}"))
        return host_line(name, Estimate(seconds, draws, Provenance.FORMULA, self.source))


def operator_line(
    machine: Machine, op: Op, steps: Batch, seconds: float, *, draws: Floats | None = None, runs: int = 1
) -> OperatorTime:
    """An operator that takes `seconds` in all over these steps, each of which has it `runs` times. FLOPs and bytes are
    those of the requested work, without padding; draws are those of its name, where none are given."""
    dtype = priced_dtype(op)
    count = runs * op.count * steps.size
    flops, moved = (runs * op.count * figure(steps).sum(keepdims=True) for figure in (op.flops, op.bytes))
    if draws is None:
        draws = seconds * machine.factors(op.name, op.kind, dtype)
    return OperatorTime(
        op=op.name,
        kind=op.kind,
        time_s=Estimate(seconds, draws, machine.evidence(op.kind, dtype).provenance, machine.source(op)),
        bound=str(machine.bound(flops, moved, np.array([seconds]), op.kind, dtype, count)[0]),
        count=count,
        flops=float(flops[0]),
        bytes=float(moved[0]),
        arithmetic=machine.arithmetic(op.kind, dtype),
    )


def host_line(name: str, time_s: Estimate, count: int = 1) -> OperatorTime:
    """Seconds in which the device waits."""
    return OperatorTime(op=name, kind="host", time_s=time_s, bound="host", count=count, flops=0.0, bytes=0.0)


def bound_of(lines: Iterable[OperatorTime]) -> tuple[str, float]:
    """What bounds most of the time of these lines, and its share."""
    return _most(lines, lambda one: one.bound)


def sum_line(name: str, lines: Sequence[OperatorTime]) -> OperatorTime:
    """Several lines as one: of the kind that takes most of the time, bound by what bounds most of it."""
    same = {one.arithmetic for one in lines}
    return OperatorTime(
        op=name,
        kind=_most(lines, lambda one: one.kind)[0],
        time_s=Estimate.total([one.time_s for one in lines]),
        bound=bound_of(lines)[0],
        count=sum(one.count for one in lines),
        flops=sum(one.flops for one in lines),
        bytes=sum(one.bytes for one in lines),
        arithmetic=same.pop() if len(same) == 1 else "",
    )


def by_name(lines: Iterable[OperatorTime]) -> list[OperatorTime]:
    """Lines of one name as one: layers that differ elsewhere run the same operator."""
    groups: dict[str, list[OperatorTime]] = {}
    for one in lines:
        groups.setdefault(one.op, []).append(one)
    return [found[0] if len(found) == 1 else sum_line(name, found) for name, found in groups.items()]


def blurred(line: OperatorTime, factors: Floats) -> OperatorTime:
    """A line whose draws are multiplied by further factors."""
    time = line.time_s
    return replace(line, time_s=Estimate(time.value, time.draws * factors, time.provenance, time.source))


def _most(lines: Iterable[OperatorTime], key: Callable[[OperatorTime], str]) -> tuple[str, float]:
    seconds: dict[str, float] = {}
    for one in lines:
        seconds[key(one)] = seconds.get(key(one), 0.0) + one.time_s.value
    name = max(seconds, key=lambda each: seconds[each])
    return name, seconds[name] / sum(seconds.values())
