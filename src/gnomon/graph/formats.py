"""From how a matrix is stored to how its product runs (`graph.dtypes`)."""

from __future__ import annotations

from gnomon.graph.dtypes import PRODUCTS, WIDTH
from gnomon.spec import Format


def product_of(format: Format) -> str:
    """The kind of product that weights of a format take part in.

    Weights whose inputs are not narrowed stream in narrow and are widened. Scales of blocks are applied inside the
    product, scales of rows and matrices behind it.
    """
    if not format.activations:
        return f"{format.name}-weights"
    if format.name == "fp8" and format.block[0] > 1:
        return "fp8-blocks"
    return format.activations


def known(format: Format) -> bool:
    """Whether operators stand for it."""
    return product_of(format) in {*PRODUCTS, *WIDTH}
