"""Where bytes can be kept: the memory of a chip, of its host, and the host's disks. The ranks of a host share the last
two."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.cost.host_link import ROOM
from gnomon.spec import Host

HOST, NVME = "host memory", "NVMe"
"""Tiers beyond the chip, as answers name them."""


def rooms(machine: Host | None) -> Mapping[str, float]:
    """Bytes that a job can keep on one host, by tier; none where the host is not known. Disks are taken to be empty."""
    if machine is None:
        return {HOST: 0.0, NVME: 0.0}
    return {HOST: ROOM * machine.memory_bytes, NVME: machine.nvme_bytes}
