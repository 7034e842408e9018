"""A model with more heads, wider matrices and more layers, all by the same factor, as families of models are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gnomon.errors import InputError
from gnomon.spec import AttentionMixer, Model
from gnomon.spec.model import Block

PARTS = 8
"""Factors are eighths: of a model with 8 key-value heads, each has one head more."""
MOST = 64 * PARTS
INNER = ("inner", "shared_inner")
"""Widths of a feed-forward."""


def family(model: Model, most_parameters: float) -> Iterator[Model]:
    """From the largest with at most so many parameters down to an eighth of each dimension; the model itself is one of
    them."""
    _check(model)
    sizes = [scaled(model, eighths) for eighths in range(1, MOST + 1) if _divides(model, eighths)]
    yield from sorted((one for one in sizes if one.parameters <= most_parameters), key=lambda one: -one.parameters)


def scaled(model: Model, eighths: int) -> Model:
    """Heads keep their size, and the stream is as wide for each head as it was. The vocabulary and the experts of a
    token stay as many."""
    if eighths == PARTS:
        return model
    blocks = tuple(_scaled(block, eighths) for block in model.blocks)
    name = f"{model.name}-x{eighths / PARTS:g}"
    return replace(model, name=name, hidden=_times(model.hidden, eighths), blocks=blocks, hub_id="", mtp=())


def _scaled(block: Block, eighths: int) -> Block:
    attention, ffn = block.attention, block.feed_forward
    heads, kv_heads = (_times(count, eighths) for count in (attention.heads, attention.kv_heads))
    inner: dict[str, Any] = {name: _times(getattr(ffn, name), eighths) for name in INNER if hasattr(ffn, name)}
    return replace(
        block,
        mixer=replace(attention, heads=heads, kv_heads=kv_heads),
        ffn=replace(ffn, **inner),
        count=max(1, round(block.count * eighths / PARTS)),
    )


def _times(size: int, eighths: int) -> int:
    return size * eighths // PARTS


def _divides(model: Model, eighths: int) -> bool:
    """Whether every dimension is whole."""
    sizes = [model.hidden]
    for block in model.blocks:
        ffn = block.feed_forward
        sizes += [block.attention.heads, block.attention.kv_heads]
        sizes += [getattr(ffn, name) for name in INNER if hasattr(ffn, name)]
    return all(size * eighths % PARTS == 0 for size in sizes)


def _check(model: Model) -> None:
    """Raise InputError for networks whose parts do not grow together."""
    plain = all(isinstance(block.mixer, AttentionMixer) and block.ffn and not block.cross for block in model.blocks)
    if not plain or model.towers or model.embedding_width or model.stem or model.tail:
        hint = "Give a list of models: MODEL,MODEL,…"
        raise InputError(f"{model.name} is no plain decoder that could be scaled", where="model", hint=hint)
