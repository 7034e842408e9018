"""From a model and its parallel degrees to the operators of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.lowering.ends import embedding, head
from gnomon.graph.lowering.ffn import feed_forward
from gnomon.graph.lowering.site import Site
from gnomon.graph.lowering.softmax import softmax
from gnomon.graph.ops import Op
from gnomon.graph.support import check_priced
from gnomon.spec import Block, Model, MoeFfn, Strategy
from gnomon.spec.model import Ffn

ALONE = Strategy()


def check_degrees(model: Model, strategy: Strategy) -> None:
    """Raise where the model has no operators or cannot be cut so, naming the nearest degree that can."""
    check_priced(model)
    for name in ("tp", "pp", "ep", "cp", "dp"):
        degree = getattr(strategy, name)
        if not isinstance(degree, int) or degree < 1:
            raise InputError(f"{degree} is not a number of chips", where=name, hint="It is 1 or more.")
    why = obstacle(model, strategy.tp, strategy)
    if why:
        most = max(block.attention.heads for block in model.blocks)
        possible = [tp for tp in range(1, most + 1) if not obstacle(model, tp, strategy)] or [1]
        near = min(possible, key=lambda tp: (abs(tp - strategy.tp), tp))
        raise InputError(why, where="tp", hint=f"The nearest degree that works is {near}.")


def obstacle(model: Model, tp: int, strategy: Strategy = ALONE) -> str:
    """What keeps the model from being cut into `tp` equal parts; empty where nothing does."""
    for block in model.blocks:
        heads, kv_heads = block.attention.heads, block.attention.kv_heads
        if heads % tp:
            return f"{model.name} has {heads} attention heads, which {tp} does not divide"
        if kv_heads % tp and tp % kv_heads:
            return f"{model.name} has {kv_heads} key-value heads, which neither divide by {tp} nor divide it"
        for inner, parts in cut_widths(block.feed_forward, tp, strategy):
            if inner % parts:
                return f"{model.name} has a feed-forward width of {inner}, which {parts} does not divide"
    return ""


def cut_widths(ffn: Ffn, tp: int, strategy: Strategy) -> Iterator[tuple[int, int]]:
    """Inner widths, and the parts each is cut into. Experts that are spread whole are not cut."""
    if not isinstance(ffn, MoeFfn):
        yield ffn.inner, tp
        return
    yield ffn.inner, tp * strategy.dp if strategy.ep == 1 else 1
    yield ffn.shared_inner, tp


def lower(
    model: Model,
    strategy: Strategy,
    dtype: str,
    kv_dtype: str,
    *,
    parts_tokens: bool = False,
    fill: float = 1.0,
    first: bool = True,
    last: bool = True,
) -> Graph:
    """The operators of a step on one rank: of all layers of `model`, between an embedding where it is the first stage
    of a pipeline and a head where it is the last.

    The batch is that of the busiest data-parallel rank; all have `fill` times as many tokens as if they were alike.
    """
    check_degrees(model, strategy)
    ops: list[Op] = [*embedding(model)] if first else []
    for block in _distinct(model):
        site = Site(
            block=block,
            hidden=model.hidden,
            strategy=strategy,
            dtype=dtype,
            kv_dtype=kv_dtype,
            parts_tokens=parts_tokens,
            gathered=strategy.dp * fill,
        )
        ops += softmax(site)
        ops += feed_forward(site)
    ops += head(model, strategy.tp) if last else ()
    return Graph(tuple(ops))


def _distinct(model: Model) -> list[Block]:
    """Equal layers together, wherever they stand: their order does not change what one rank runs."""
    counts: dict[Block, int] = {}
    for block in model.blocks:
        alone = replace(block, count=1)
        counts[alone] = counts.get(alone, 0) + block.count
    return [replace(block, count=count) for block, count in counts.items()]
