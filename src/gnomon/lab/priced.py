"""Seconds of kernels on a chip, as plans price them, for the predictions of experiments."""

from __future__ import annotations

import numpy as np

from gnomon.cost.machine import Machine
from gnomon.load.profiles import profile_for
from gnomon.spec import Chip, Pool


def machine_of(chip: Chip) -> Machine:
    """One of a chip, as plans price it."""
    return Machine(Pool.of(chip, 1), profile_for(chip))


def gemm_s(machine: Machine, m: int, n: int, k: int, dtype: str = "bf16", batch: int = 1) -> float:
    """Seconds of a GEMM on a machine."""
    shape = {name: np.array([float(size)]) for name, size in (("m", m), ("n", n), ("k", k), ("batch", batch))}
    return float(machine.seconds("gemm", dtype, shape)[0])


def stream_s(machine: Machine, read: float, written: float) -> float:
    """Seconds of an elementwise kernel that reads and writes so many bytes."""
    stream = {"bytes_read": np.array([read]), "bytes_written": np.array([written]), "efficiency": np.ones(1)}
    return float(machine.seconds("elementwise", "bf16", stream)[0])
