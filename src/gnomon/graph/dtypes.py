"""Number formats: widths of their values, and how GEMMs run in them."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.errors import unknown_name

WIDTH = {
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
    "int6": 0.75,
    "int5": 0.625,
    "int3": 0.375,
    "int2": 0.25,
    "int1": 0.125,
    "mxfp4": 0.5,
    "nvfp4": 0.5,
    "bf16-sparse": 1.125,
    "fp8-sparse": 0.625,
    "int8-sparse": 0.625,
}
"""Bytes of a value, without the scales that a block of values shares (`spec.formats`). Of `-sparse` weights two of
every four are kept, with two bits of place each."""

STATE = "bf16"
"""Activations between operators of a serving engine stay in this format whatever the weights are in."""


def width(dtype: str) -> float:
    """Bytes of one value."""
    try:
        return WIDTH[dtype]
    except KeyError:
        raise unknown_name("number format", dtype, WIDTH) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmFormat:
    """Formats of a GEMM whose two operands differ, or carry scales."""

    inputs: float
    """Bytes per activation value, scales included."""
    weights: float
    """Bytes per weight, scales included."""
    compute_dtype: str
    """The format that the tensor cores run in."""
    sparse: bool = False
    """Whether two of every four weights are zero, which sparse tensor cores skip."""


_BLOCKS_OF_128 = 1 + 4 / 128
_HALF = 2.0
_SCALES_OF_128 = 2 / 128
GEMM_FORMATS = {
    "fp8-blocks": GemmFormat(inputs=_BLOCKS_OF_128, weights=1 + 4 / 128**2, compute_dtype="fp8"),
    "fp8-vectors": GemmFormat(inputs=_BLOCKS_OF_128, weights=_BLOCKS_OF_128, compute_dtype="fp8"),
    "fp8-rows": GemmFormat(inputs=1.0, weights=1.0, compute_dtype="fp8"),
    "nvfp4": GemmFormat(inputs=0.5 + 1 / 16, weights=0.5 + 1 / 16, compute_dtype="fp4"),
    "mxfp8": GemmFormat(inputs=1 + 1 / 32, weights=1 + 1 / 32, compute_dtype="fp8"),
    "mxfp4-mxfp8": GemmFormat(inputs=1 + 1 / 32, weights=0.5 + 1 / 32, compute_dtype="fp8"),
    "fp8-weights": GemmFormat(inputs=_HALF, weights=1.0, compute_dtype="bf16"),
    "int8-weights": GemmFormat(inputs=_HALF, weights=1 + 2 / 128, compute_dtype="bf16"),
    **{
        f"int{bits}-weights": GemmFormat(inputs=_HALF, weights=bits / 8 + _SCALES_OF_128, compute_dtype="bf16")
        for bits in (6, 5, 4, 3, 2, 1)
    },
    "mxfp4-weights": GemmFormat(inputs=_HALF, weights=0.5 + 1 / 32, compute_dtype="bf16"),
    "nvfp4-weights": GemmFormat(inputs=_HALF, weights=0.5 + 1 / 16, compute_dtype="bf16"),
    "mxfp4-mxfp4": GemmFormat(inputs=0.5 + 1 / 32, weights=0.5 + 1 / 32, compute_dtype="fp4"),
    "bf16-sparse": GemmFormat(inputs=_HALF, weights=WIDTH["bf16-sparse"], compute_dtype="bf16", sparse=True),
    **{
        f"{name}-sparse": GemmFormat(
            inputs=WIDTH[name], weights=WIDTH[f"{name}-sparse"], compute_dtype=name, sparse=True
        )
        for name in ("fp8", "int8")
    },
}
"""`-weights` are weight-only quantization: narrow weights are dequantized to the activations' 16 bits. `fp8-vectors`
has a scale per 128 values of both operands, as gradients by weight have where other GEMMs are in `fp8-blocks`; scales
of rows are next to nothing beside their values. `-sparse` weights have two of every four zero and keep the others."""


KERNEL = "+"
"""Between a format and the kernel that runs it, where a chip has several for it: `fp8-blocks+triton`."""


def without_kernel(dtype: str) -> str:
    """A format without the kernel that runs it."""
    return dtype.partition(KERNEL)[0]


def gemm_format(dtype: str) -> GemmFormat:
    """How a GEMM runs in a format: both operands in it, unless `GEMM_FORMATS` has it."""
    found = GEMM_FORMATS.get(dtype)
    if found is None and KERNEL in dtype:
        return gemm_format(without_kernel(dtype))
    return found or GemmFormat(inputs=width(dtype), weights=width(dtype), compute_dtype=dtype)
