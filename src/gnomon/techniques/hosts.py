"""Bandwidth and memory that ranks get of the host they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gnomon.cost.host_link import SUSTAINED
from gnomon.spec import Host, Pool
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TrainingCase

if TYPE_CHECKING:  # serving imports nothing of training
    from gnomon.engines.training import StepTable


def host_of(case: TrainingCase) -> Host:
    assert case.pool.machine is not None  # checked by `reject_reason`
    return case.pool.machine


def no_host(pool: Pool) -> str:
    """Why there is no host memory to offload to; empty where there is."""
    if pool.chip.unified:
        return f"{pool.chip.name} shares one memory with its host"
    return f"the host of {pool.chip.name} is not known" if pool.host is None else ""


def neighbours(found: StepTable, case: TrainingCase) -> Floats:
    """Ranks that share one host."""
    return np.minimum(found.grid.ranks, case.pool.machine_chips).astype(float)


def link_bytes_s(found: StepTable, case: TrainingCase) -> Floats:
    """Bytes per second of one rank's copies, one way, while all ranks on its host copy too."""
    host = host_of(case)
    return np.asarray(host.link.bandwidth_bytes_s / np.minimum(neighbours(found, case), host.link_sharing))


def memory_bytes_s(found: StepTable, case: TrainingCase) -> Floats:
    """One rank's share of the host's memory bandwidth."""
    return np.asarray(SUSTAINED * host_of(case).memory_bandwidth_bytes_s / neighbours(found, case))
