"""What ranks reach on the link between chip and host."""

from __future__ import annotations

from gnomon.cost.profile import Family
from gnomon.spec import Host, Provenance

LINK_SHARE = 0.87
"""Of a link's bandwidth that copies of many megabytes reach: 54.7 of 63 GB/s between pinned memory and an H200
(`checkpoint_copy_bytes_s` of papers/index/datastates_llm/lab.json)."""
SUSTAINED = 0.8
"""Of a host's memory bandwidth, what processors and copies reach together: STREAM on servers of two sockets."""
ROOM = 0.9
"""Of a host's memory, what a job can use."""
LINK_SPREAD = 0.10
"""Log standard deviation of the bandwidth of concurrent copies between chip and host."""
DISK_SPREAD = 0.3
"""Log standard deviation of the bandwidth of disks under large files that are read and written at once: an estimate."""
CORE_FLOPS = 40e9
"""What one core multiplies per second of weights it widens on the way: half of two AVX2 units at 2.5 GHz;
an estimate."""
HANDOVER_S = 30e-6
"""Until processors that wait for the chip have its rows, and the chip what they made of them: two messages over the
link and threads that wake; an estimate."""
EXPERTS_SPREAD, EXPERTS_SHARED = 0.5, 0.45
"""Log standard deviation of experts that are fetched, or computed by processors whose kernels nobody has measured for
us, and what all layers share of it; an estimate."""
READ_SHARE = 0.86
"""Of the rate of a copy, what kernels reach that read weights in the host's memory themselves: the median of GEMMs of
qwen2.5-7b and llama-3.1-8b on an H200 (measurements/h200-2026-11-18-weight-offload/host_reads.csv, by
tools/host_reads.py)."""
READ_SPREAD, READ_SHARED = 0.25, 0.10
"""Log standard deviation of one kernel's time, 0.28 in the GEMMs of that fit and 0.20 in those of qwen2.5-14b and
llama-3.1-70b that it has not seen, and what all kernels of a card share of it, by the served loads beside them. Long
sums are split by kernels that read at half the rate (k of 18,944 at few rows: 23 GB/s)."""


def host_bytes_s(host: Host, readers: int) -> float:
    """Bytes per second that each of so many ranks on one host gets, all at once."""
    return min(LINK_SHARE * host.copy_bytes_s(readers), SUSTAINED * host.memory_bandwidth_bytes_s / max(readers, 1))


def read_bytes_s(host: Host, readers: int) -> float:
    """Bytes per second that kernels get which read the host's memory themselves, on each of so many ranks."""
    return READ_SHARE * host_bytes_s(host, readers)


def read_family(host: Host) -> Family:
    """How well the time of kernels is known that read weights from the host."""
    return Family(
        coefficients={},
        spread=READ_SPREAD,
        shared=READ_SHARED,
        provenance=Provenance.FITTED,
        source=f"{host.link.name} to the host's memory, as GEMMs of an H200 read it",
    )


def cpu_bytes_s(host: Host, readers: int) -> float:
    """Bytes of weights per second that processors multiply by a few rows, for each of so many ranks."""
    return SUSTAINED * host.memory_bandwidth_bytes_s / max(readers, 1)


def cpu_flops_s(host: Host, readers: int) -> float:
    """FLOPs per second of the processors that each of so many ranks gets."""
    return CORE_FLOPS * host.cores / max(readers, 1)


def expert_family(host: Host) -> Family:
    """How well the time of experts is known that are not on the chip."""
    return Family(
        coefficients={},
        spread=EXPERTS_SPREAD,
        shared=EXPERTS_SHARED,
        provenance=Provenance.FORMULA,
        source=f"{host.link.name}, and memory and cores of {host.name}",
    )
