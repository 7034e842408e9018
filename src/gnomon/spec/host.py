"""The machine around the chips: processor, memory, disks, and the way between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gnomon.spec.chip import Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of a node. Figures are of the whole host, which all chips of the node share."""

    name: str
    cores: int
    memory_bytes: float
    memory_bandwidth_bytes_s: float
    adam_parameters_s: float
    """Parameters an optimizer on all cores updates per second: Adam with fp32 states, 16-bit weights written out."""
    nvme_bytes: float
    nvme_read_bytes_s: float
    nvme_write_bytes_s: float
    link: Link
    """Between one chip and the host, one direction."""
    link_sharing: int = 1
    """Chips behind one uplink to the host, which copy at `link / link_sharing` when all do at once."""
    machines: int = 1
    """Equal machines with memory of their own that its figures are of: the trays of a rack."""
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    confidence: Mapping[str, str] = field(default_factory=dict)

    @property
    def one(self) -> Host:
        """One of its machines."""
        part = 1 / self.machines
        return replace(
            self,
            machines=1,
            cores=max(1, self.cores // self.machines),
            memory_bytes=self.memory_bytes * part,
            memory_bandwidth_bytes_s=self.memory_bandwidth_bytes_s * part,
            adam_parameters_s=self.adam_parameters_s * part,
            nvme_bytes=self.nvme_bytes * part,
            nvme_read_bytes_s=self.nvme_read_bytes_s * part,
            nvme_write_bytes_s=self.nvme_write_bytes_s * part,
        )

    def copy_bytes_s(self, chips: int = 1) -> float:
        """Bytes per second that each of so many neighbouring chips copies to or from the host at once."""
        return self.link.bandwidth_bytes_s / min(max(chips, 1), self.link_sharing)
