"""Number formats: widths of their values, and how products run in them."""

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
    "int3": 0.375,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """How a product runs whose two sides are not simply in one format."""

    inputs: float
    """Bytes of a value of the activations, scales included."""
    weights: float
    """Bytes of a weight, scales included."""
    multiplied: str
    """The format a chip multiplies them in."""


_BLOCKS_OF_128 = 1 + 4 / 128
_HALF = 2.0
PRODUCTS = {
    "fp8-blocks": Product(inputs=_BLOCKS_OF_128, weights=1 + 4 / 128**2, multiplied="fp8"),
    "nvfp4": Product(inputs=0.5 + 1 / 16, weights=0.5 + 1 / 16, multiplied="fp4"),
    "mxfp4-mxfp8": Product(inputs=1 + 1 / 32, weights=0.5 + 1 / 32, multiplied="fp8"),
    "fp8-weights": Product(inputs=_HALF, weights=1.0, multiplied="bf16"),
    "int8-weights": Product(inputs=_HALF, weights=1 + 2 / 128, multiplied="bf16"),
    "int4-weights": Product(inputs=_HALF, weights=0.5 + 2 / 128, multiplied="bf16"),
    "int3-weights": Product(inputs=_HALF, weights=0.375 + 2 / 128, multiplied="bf16"),
    "mxfp4-weights": Product(inputs=_HALF, weights=0.5 + 1 / 32, multiplied="bf16"),
    "nvfp4-weights": Product(inputs=_HALF, weights=0.5 + 1 / 16, multiplied="bf16"),
}
"""`-weights` are weight-only products: narrow weights stream in and meet 16-bit activations."""


def product(dtype: str) -> Product:
    """Both sides of a product in a format; the same one where nothing else is said."""
    found = PRODUCTS.get(dtype)
    return found or Product(inputs=width(dtype), weights=width(dtype), multiplied=dtype)
