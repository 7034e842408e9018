"""Bandwidth and memory that ranks get of the host they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gnomon.cost.host_link import LINK_SHARE, SUSTAINED
from gnomon.cost.tiers import HOST, NVME
from gnomon.spec import Host, Pool
from gnomon.spec.workload import Floats

if TYPE_CHECKING:  # serving imports nothing of training
    from gnomon.engines.training.case import TrainingCase


ON_HOST, ON_NVME = PLACES = ("host", "nvme")
"""Where a technique keeps something, as its parameter `tier` says it."""


class TierPeaks(NamedTuple):
    """The most that any rank of a pipeline holds in each tier, of every plan."""

    chip: Floats
    host: Floats
    nvme: Floats


def host_of(case: TrainingCase) -> Host:
    assert case.pool.machine is not None  # checked by `reject`
    return case.pool.machine


def no_host(pool: Pool) -> str:
    """Why there is no host memory to offload to; empty where there is."""
    if pool.chip.unified:
        return f"{pool.chip.name} shares one memory with its host"
    return f"the host of {pool.chip.name} is not known" if pool.host is None else ""


def neighbours(case: TrainingCase) -> Floats:
    """Ranks that share one host."""
    return np.minimum(case.plans.ranks, case.pool.machine_chips).astype(float)


def tier_bytes(used: TierPeaks, case: TrainingCase) -> Mapping[str, Floats]:
    """What the ranks of one host keep beyond their chips, by tier, of every plan."""
    each = neighbours(case)
    return {HOST: each * used.host, NVME: each * used.nvme}


def link_bytes_s(case: TrainingCase) -> Floats:
    """Bytes per second of one rank's copies, one way, while all ranks on its host copy too."""
    host = host_of(case)
    return np.asarray(host.link.bandwidth_bytes_s / np.minimum(neighbours(case), host.link_sharing))


def copy_bytes_s(case: TrainingCase) -> Floats:
    """Bytes per second of one rank's copies, one way, while all ranks on its host copy too: what large copies reach of
    the link, or its share of the host's memory bandwidth."""
    return np.asarray(np.minimum(LINK_SHARE * link_bytes_s(case), memory_bytes_s(case)))


def memory_bytes_s(case: TrainingCase) -> Floats:
    """One rank's share of the host's memory bandwidth."""
    return np.asarray(SUSTAINED * host_of(case).memory_bandwidth_bytes_s / neighbours(case))


def read_bytes_s(case: TrainingCase) -> Floats:
    """One rank's share of what its host's disks read, while all its ranks do."""
    return np.asarray(host_of(case).nvme_read_bytes_s / neighbours(case))


def write_bytes_s(case: TrainingCase) -> Floats:
    """One rank's share of what its host's disks write, while all its ranks do."""
    return np.asarray(host_of(case).nvme_write_bytes_s / neighbours(case))


def no_disks(pool: Pool) -> str:
    """Why there are no disks to offload to; empty where there are."""
    machine = pool.machine
    none = machine is None or not (machine.nvme_bytes and machine.nvme_read_bytes_s and machine.nvme_write_bytes_s)
    return f"the host of {pool.chip.name} has no NVMe" if none else ""
