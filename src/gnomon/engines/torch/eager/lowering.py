"""Options of lowering a call: the precision of fp32 arithmetic, and kernel efficiencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.engines.torch.eager.forms import find_efficiency
from gnomon.errors import InputError
from gnomon.graph.ops import Elementwise
from gnomon.graph.style import STREAMING_EFFICIENCY
from gnomon.spec.traced import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What fp32 GEMMs and convolutions run in: PyTorch's defaults are fp32 for GEMMs and tf32 for convolutions."""

    gemms: str = "fp32"
    convolutions: str = "tf32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    precision: Precision
    efficiencies: Mapping[str, float]

    def gemm_dtype(self, spec: TensorSpec) -> str:
        return format_of(spec, self.precision.gemms)

    def stream(self, name: str, read: float, written: float, like: str, *, wide: bool, count: int = 1) -> Elementwise:
        efficiency = find_efficiency(self.efficiencies, wide, name, like)
        return Elementwise(
            name=name,
            rows=1,
            read_per_row=read,
            written_per_row=written,
            count=count,
            efficiency=efficiency,
            cached=efficiency >= STREAMING_EFFICIENCY,
        )


def format_of(spec: TensorSpec, wide: str) -> str:
    """The format that a GEMM runs in; formats not on a data sheet run as fp32, except wider ones, which run at other
    rates: a half of it on some chips, 1/64 on others."""
    if spec.dtype in ("fp64", "complex128"):
        raise InputError(
            f"arithmetic in {spec.dtype} cannot be priced: the catalog has no fp64 rates",
            where="--dtype",
            hint="Use --dtype fp32 or bf16, and remove casts to fp64 inside the module.",
        )
    return spec.dtype if spec.dtype in ("bf16", "fp16", "fp8", "int8") else wide
