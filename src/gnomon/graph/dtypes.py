"""Number formats and their widths."""

from __future__ import annotations

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
    "mxfp4": 0.5,
    "nvfp4": 0.5,
}
"""Bytes of a value, without the scales that a block of values shares (`spec.formats`)."""


def width(dtype: str) -> float:
    """Bytes of one value."""
    try:
        return WIDTH[dtype]
    except KeyError:
        raise unknown_name("number format", dtype, WIDTH) from None
