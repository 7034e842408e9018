"""A chip and its links, as a data sheet gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FORMATS = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4")
"""Number formats a chip may have a rate for."""
HALVES = ("bf16", "fp16", "fp32")
"""What a chip multiplies in when values of 16 bits are wanted: the first of these that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection between chips or nodes. Bandwidth in bytes per second, one direction, one chip."""

    name: str
    bandwidth_bytes_s: float
    latency_s: float
    direct: bool = True
    """Whether more than two chips reach each other's memory over it without a detour."""
    mesh: bool = False
    """Whether every two chips of a node have wires of their own, which no others can use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator. Rates are operations per second by number format, dense unless they are `sparse_flops`."""

    name: str
    vendor: str
    architecture: str
    year: int = 0
    rates_flops: Mapping[str, float]
    sparse_flops: Mapping[str, float] = field(default_factory=dict)
    """With two of four weights zero, where the data sheet gives it."""
    memory: str = ""
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
    bridge: Link | None = None
    bridge_size: int = 1
    """Chips that a bridge of the data sheet joins where it is fitted; see `Pool.bridged`."""
    node: str = ""
    """The machine it is usually bought in."""
    price_usd_h: float
    aliases: tuple[str, ...] = ()
    note: str = ""
    unified: bool = False
    """Whether its memory is the host's too."""
    sources: Mapping[str, str] = field(default_factory=dict)
    confidence: Mapping[str, str] = field(default_factory=dict)
    """How a figure is known where it was not read in a data sheet or off the chip: recalled, estimated, announced."""
    file: str = ""
    """Where the user wrote it down; empty for a chip that is known by its name."""

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def generation(self) -> str:
        """The architecture whose kernels it runs: Blackwell Ultra runs Blackwell's (sm_100f)."""
        return self.architecture.removesuffix(" Ultra")

    def rate(self, dtype: str) -> float:
        """Dense operations per second in a number format."""
        try:
            return self.rates_flops[dtype]
        except KeyError:
            from gnomon.errors import unknown_name

            raise unknown_name(f"number format for {self.name}", dtype, self.rates_flops) from None

    @property
    def half(self) -> str:
        """The number format it multiplies 16-bit values in: bf16, fp16 on chips from before it, else fp32."""
        return next((dtype for dtype in HALVES if dtype in self.rates_flops), next(iter(self.rates_flops)))

    def half_rate(self, dtype: str) -> float:
        """Operations per second on 16-bit values that are kept in a number format, perhaps a narrower one."""
        return self.rates_flops[dtype if dtype in HALVES and dtype in self.rates_flops else self.half]

    def matrix_rate(self, dtype: str) -> float:
        """`rate` of a GEMM inside a step, whose 16-bit values are in the one such format that the chip has."""
        return self.half_rate(dtype) if dtype in HALVES[:2] else self.rate(dtype)

    def gemm_rate(self, dtype: str, *, sparse: bool = False) -> float:
        """`matrix_rate`, and with `sparse` that of weights of which two of four are zero: the dense one where the data
        sheet gives none."""
        dense = self.matrix_rate(dtype)
        halves = [name for name in HALVES[:2] if name in self.sparse_flops] if dtype in HALVES[:2] else [dtype]
        return max([dense, *(self.sparse_flops.get(name, 0.0) for name in halves)]) if sparse else dense

    @property
    def vector_rate(self) -> float:
        """Plain fp32 operations per second; an eighth of the 16-bit matrix rate where the data sheet gives none."""
        return self.rates_flops.get("fp32", self.rates_flops[self.half] / 8)

    def instead_of(self, dtype: str) -> str | None:
        """The format a model of some format is run in: that one, fp16 on a chip without bf16, else none."""
        return next((own for own in (dtype, *(["fp16"] if dtype == "bf16" else [])) if own in self.rates_flops), None)

    @property
    def reference(self) -> str:
        """What finds it again: its name, or its file."""
        return self.file or self.name

    @property
    def short(self) -> str:
        """The chip as people call it: its first alias where that is shorter than its name."""
        return min(self.name, *self.aliases[:1], key=len) if self.aliases else self.name
