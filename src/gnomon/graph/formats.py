"""From how a matrix is stored to how its GEMM runs (`graph.dtypes`)."""

from __future__ import annotations

from gnomon.graph.dtypes import GEMM_FORMATS, WIDTH
from gnomon.spec import Format


def gemm_dtype(format: Format) -> str:
    """The format (`graph.dtypes`) that a GEMM with such weights runs in.

    Weights whose inputs are not narrowed are read narrow and dequantized. Scales of blocks are applied inside the
    GEMM, scales of rows and matrices after it.
    """
    if not format.activations:
        return f"{format.name}-weights"
    if format.name == "fp8" and format.block[0] > 1:
        return "fp8-blocks"
    return format.activations


def known(format: Format) -> bool:
    """Whether a GEMM in it can be priced."""
    return gemm_dtype(format) in {*GEMM_FORMATS, *WIDTH}
