"""A chip and its links, as a data sheet gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection between chips or nodes. Bandwidth in bytes a second, one direction, one chip."""

    name: str
    bandwidth_bytes_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator. Rates are dense (no sparsity) operations a second by number format."""

    name: str
    vendor: str
    architecture: str
    rates_flops: Mapping[str, float]
    memory_bytes: float
    memory_bandwidth_bytes_s: float
    l2_bytes: float
    sm_count: int
    boost_hz: float
    tdp_w: float
    idle_w: float
    scaleup: Link
    scaleup_size: int
    scaleout: Link
    price_usd_h: float
    aliases: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def rate(self, dtype: str) -> float:
        """Dense operations a second in a number format."""
        try:
            return self.rates_flops[dtype]
        except KeyError:
            from gnomon.errors import unknown_name

            raise unknown_name(f"number format for {self.name}", dtype, self.rates_flops) from None
