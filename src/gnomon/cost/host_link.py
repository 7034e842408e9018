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
READ_SPREAD = 0.30
"""Of kernels that read the host's memory themselves. None has been measured: they are taken to reach as much as a copy,
and to read no byte twice."""


def host_bytes_s(host: Host, readers: int) -> float:
    """Bytes per second that each of so many ranks on one host gets, all at once."""
    return min(LINK_SHARE * host.copy_bytes_s(readers), SUSTAINED * host.memory_bandwidth_bytes_s / max(readers, 1))


def read_family(host: Host) -> Family:
    """How well the time of kernels is known that read weights from the host."""
    return Family(
        coefficients={},
        spread=READ_SPREAD,
        shared=READ_SPREAD,
        provenance=Provenance.FORMULA,
        source=f"{host.link.name} to the host's memory, not measured",
    )
