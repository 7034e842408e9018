"""From a model and its parallel degrees to the operators of one rank."""

from __future__ import annotations

from dataclasses import replace

from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.lowering.ends import embedding, head
from gnomon.graph.lowering.ffn import feed_forward
from gnomon.graph.lowering.site import Site
from gnomon.graph.lowering.softmax import softmax
from gnomon.graph.ops import Op
from gnomon.graph.support import check_priced
from gnomon.spec import Block, Model, Strategy
from gnomon.spec.narrowed import in_format


def check_degrees(model: Model, strategy: Strategy) -> None:
    """Raise where the model has no operators or cannot be cut so, naming the nearest degree that can."""
    check_priced(model)
    for name in ("tp", "pp", "ep", "cp", "dp"):
        degree = getattr(strategy, name)
        if not isinstance(degree, int) or degree < 1:
            raise InputError(f"{degree} is not a number of chips", where=name, hint="It is 1 or more.")
    why = obstacle(model, strategy.tp)
    if why:
        most = max(block.attention.heads for block in model.blocks)
        possible = [tp for tp in range(1, most + 1) if not obstacle(model, tp)]
        near = min(possible, key=lambda tp: (abs(tp - strategy.tp), tp))
        raise InputError(why, where="tp", hint=f"The nearest degree that works is {near}.")


def obstacle(model: Model, tp: int) -> str:
    """What keeps the model from being cut into `tp` equal parts; empty where nothing does."""
    for block in model.blocks:
        heads, kv_heads = block.attention.heads, block.attention.kv_heads
        widths = [block.feed_forward.inner, getattr(block.feed_forward, "shared_inner", 0)]
        if heads % tp:
            return f"{model.name} has {heads} attention heads, which {tp} does not divide"
        if kv_heads % tp and tp % kv_heads:
            return f"{model.name} has {kv_heads} key-value heads, which neither divide by {tp} nor divide it"
        for inner in widths:
            if inner % tp:
                return f"{model.name} has a feed-forward width of {inner}, which {tp} does not divide"
    return ""


def lower(model: Model, strategy: Strategy, dtype: str, kv_dtype: str) -> Graph:
    """The operators of a step on one rank of a tensor-parallel group."""
    check_degrees(model, strategy)
    model = in_format(model, dtype)
    ops: list[Op] = [*embedding(model)]
    for block in _distinct(model):
        site = Site(block=block, hidden=model.hidden, strategy=strategy, dtype=dtype, kv_dtype=kv_dtype)
        ops += softmax(site)
        ops += feed_forward(site)
    ops += head(model, strategy.tp)
    return Graph(tuple(ops))


def _distinct(model: Model) -> list[Block]:
    """Equal layers together, wherever they stand: their order does not change what one rank runs."""
    counts: dict[Block, int] = {}
    for block in model.blocks:
        alone = replace(block, count=1)
        counts[alone] = counts.get(alone, 0) + block.count
    return [replace(block, count=count) for block, count in counts.items()]
