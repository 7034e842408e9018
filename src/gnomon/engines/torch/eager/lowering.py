"""What lowering a call needs to know beside it: what fp32 may round to, and how fast kernels stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gnomon.engines.torch.eager.forms import find_pace
from gnomon.errors import InputError
from gnomon.graph.ops import Elementwise
from gnomon.graph.style import STREAMING_EFFICIENCY
from gnomon.spec.traced import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What fp32 products run in: PyTorch's own defaults are full fp32 for matrices and tf32 for convolutions."""

    products: str = "fp32"
    convolutions: str = "tf32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowering:
    precision: Precision
    efficiencies: Mapping[str, float]

    def product_dtype(self, spec: TensorSpec) -> str:
        return format_of(spec, self.precision.products)

    def stream(self, name: str, read: float, written: float, like: str, *, wide: bool, count: int = 1) -> Elementwise:
        efficiency = find_pace(self.efficiencies, wide, name, like)
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
    """The format a product runs in; what a data sheet does not list goes as fp32, but for wider ones, which run at
    other rates: a half of it on some chips, 1/64 on others."""
    if spec.dtype in ("fp64", "complex128"):
        raise InputError(
            f"arithmetic in {spec.dtype} has no price: the catalog's chips have no fp64 rates",
            where="--dtype",
            hint="Give --dtype fp32 or bf16; a cast to fp64 inside the module has to go.",
        )
    return spec.dtype if spec.dtype in ("bf16", "fp16", "fp8", "int8") else wide
