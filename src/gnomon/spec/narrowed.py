"""A network in another number format than the one it is stored in: what it would be if it were quantised so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.errors import unknown_name
from gnomon.spec.formats import NARROW, PLAIN_BITS, Format
from gnomon.spec.model import Block, Model

WIDE = ("router", "shared_score", "conv", "decay")
"""Roles that engines keep wide: they are small, and what they decide is delicate."""


def in_format(model: Model, dtype: str) -> Model:
    """The model with the matrices of its layers in a format; as it is where it is stored in that one.

    Embedding, head, norms and routers stay in the format of what is not quantised.
    """
    if dtype == model.dtype:
        return model
    if dtype in PLAIN_BITS:
        return replace(_with(model, None), dtype=dtype, kept_dtype="", head_format=None)
    if dtype not in NARROW:
        raise unknown_name("number format of weights", dtype, (*PLAIN_BITS, *NARROW))
    return narrowed(model, NARROW[dtype])


def narrowed(model: Model, format: Format) -> Model:
    """The model with the matrices of its layers in any narrow format, under its name."""
    return replace(_with(model, format), dtype=format.name, kept_dtype=model.working_dtype, head_format=None)


def _with(model: Model, format: Format | None) -> Model:
    blocks = tuple(replace(block, formats=tuple(_formats(block, format))) for block in model.blocks)
    plain = tuple(
        replace(tower, blocks=tuple(replace(block, formats=()) for block in tower.blocks)) for tower in model.towers
    )
    return replace(model, blocks=blocks, towers=plain)


def _formats(block: Block, format: Format | None) -> Iterator[tuple[str, Format]]:
    if format is not None:
        for role in sorted(matrices(block)):
            yield role, format


def matrices(block: Block) -> set[str]:
    """Roles of a layer's matrices that a format is expected for."""
    return {t.role for t in block.tensors(64) if t.columns > 1 and t.role not in WIDE and t.role != "vector"}
