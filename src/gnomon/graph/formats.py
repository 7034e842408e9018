"""From how a matrix is stored to how its GEMM runs (`graph.dtypes`)."""

from __future__ import annotations

from gnomon.graph.dtypes import GEMM_FORMATS, KERNEL, WIDTH, without_kernel
from gnomon.spec import Format
from gnomon.spec.formats import PLAIN_BITS


def gemm_dtype(format: Format) -> str:
    """The format (`graph.dtypes`) that a GEMM with such weights runs in.

    Weights whose inputs are not narrowed are read narrow and dequantized. Scales of blocks are applied inside the
    GEMM, scales of rows and matrices after it.
    """
    return _numbers(format) + (f"{KERNEL}{format.kernel}" if format.kernel else "")


def _numbers(format: Format) -> str:
    if format.name in PLAIN_BITS:
        return format.name
    if format.name.endswith("-sparse"):
        return format.name
    if not format.activations:
        return f"{format.name}-weights"
    if format.name == "fp8" and format.block[0] > 1:
        return "fp8-blocks"
    if f"{format.name}-{format.activations}" in GEMM_FORMATS:
        return f"{format.name}-{format.activations}"
    return format.activations


def known(format: Format) -> bool:
    """Whether a GEMM in it can be priced."""
    return without_kernel(gemm_dtype(format)) in {*GEMM_FORMATS, *WIDTH}
