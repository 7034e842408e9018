"""Chips whose clock is held below its highest (`nvidia-smi --lock-gpu-clocks`), whatever they draw."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.cost.governor import OpPower
from gnomon.cost.machine import Machine
from gnomon.graph.host_ops import HostExperts, HostRead
from gnomon.graph.ops import Op
from gnomon.spec import Batch
from gnomon.spec.workload import Floats


@dataclass(frozen=True)
class LockedMachine(Machine):
    """A machine at a lower clock: what of its operators follows the clock takes longer, and their joules beyond the
    constant draw fall with the voltage. A power limit acts beyond that."""

    slowdown: float = 1.0
    """The highest clock over the locked one."""

    def op_seconds(self, op: Op, batch: Batch) -> Floats:
        found = super().op_seconds(op, batch)
        if isinstance(op, HostRead | HostExperts):
            return found  # the operator in it is slowed by itself, the link is not
        return found * (1 + (self.slowdown - 1) * super().op_power(op, batch, found).clocked)

    def op_power(self, op: Op, batch: Batch, seconds: Floats) -> OpPower:
        if isinstance(op, HostRead | HostExperts):
            return super().op_power(op, batch, seconds)
        full = super().op_power(op, batch, super().op_seconds(op, batch))
        clocked = self.slowdown * full.clocked / (1 + (self.slowdown - 1) * full.clocked)
        return OpPower(clocked, full.joules * self.governor.energy_share(self.slowdown))
