"""From a model and its parallel degrees to the operators of one rank."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.dtypes import width
from gnomon.graph.ops import LOGITS, TOKENS, Attention, Collective, Elementwise, Experts, Gemm, Op
from gnomon.graph.support import check_priced
from gnomon.spec import Attention as AttentionShape
from gnomon.spec import Block, DenseFfn, Model, MoeFfn, Strategy

STATE = "bf16"
"""Activations between operators stay in this format whatever the weights are in."""


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
    ops: list[Op] = [_stream("embedding", model.hidden, 1, 1)]
    for block in _distinct(model):
        ops += _mixer(model, block, strategy.tp, dtype, kv_dtype)
        ops += _ffn(model, block, strategy.tp, dtype)
    ops += _head(model, strategy.tp)
    return Graph(tuple(ops))


def _distinct(model: Model) -> list[Block]:
    """Equal layers together, wherever they stand: their order does not change what one rank runs."""
    counts: dict[tuple[AttentionShape, DenseFfn | MoeFfn], int] = {}
    for block in model.blocks:
        key = (block.attention, block.feed_forward)
        counts[key] = counts.get(key, 0) + block.count
    return [Block(mixer=mixer, ffn=ffn, count=count) for (mixer, ffn), count in counts.items()]


def _stream(name: str, values: float, reads: float, writes: float, count: int = 1) -> Elementwise:
    """An operator that reads and writes so many times `values` numbers a token."""
    size = values * width(STATE)
    return Elementwise(name=name, rows=TOKENS, read_per_row=reads * size, written_per_row=writes * size, count=count)


def _all_reduce(name: str, hidden: int, tp: int, count: int) -> Iterator[Op]:
    if tp > 1:
        yield Collective(
            name=name, op="all_reduce", rows=TOKENS, bytes_per_row=hidden * width(STATE), ranks=tp, count=count
        )


def _linear(name: str, n: int, k: int, dtype: str, count: int) -> Iterator[Op]:
    """A weight matrix; in eight bits its input is quantised first: a row is read for its largest value, then again."""
    if width(dtype) < width(STATE):
        yield Elementwise(
            name=f"{name}.quantise",
            rows=TOKENS,
            read_per_row=2 * k * width(STATE),
            written_per_row=k * width(dtype),
            count=count,
        )
    yield Gemm(name=name, m=TOKENS, n=n, k=k, dtype=dtype, count=count)


def _mixer(model: Model, block: Block, tp: int, dtype: str, kv_dtype: str) -> Iterator[Op]:
    shape: AttentionShape = block.attention
    heads, kv_heads = shape.heads // tp, max(1, shape.kv_heads // tp)
    q, kv = heads * shape.head_dim, kv_heads * shape.head_dim
    count = block.count
    yield _stream("attention.norm", model.hidden, 2, 2, count)
    yield from _linear("attention.qkv", q + 2 * kv, model.hidden, dtype, count)
    if shape.qk_norm:
        yield _stream("attention.qk_norm", q + kv, 1, 1, count)
    turned = shape.head_dim if shape.rotary_dim is None else shape.rotary_dim
    if turned:
        yield _stream("attention.rope", (heads + kv_heads) * turned, 1, 1, count)
    yield _stream("attention.cache_write", 2 * kv, 1, width(kv_dtype) / width(STATE), count)
    for phase in ("prefill", "decode"):
        yield Attention(
            name=f"attention.{phase}",
            phase=phase,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=shape.head_dim,
            kv_dtype=kv_dtype,
            count=count,
        )
    yield from _linear("attention.out", model.hidden, q, dtype, count)
    yield from _all_reduce("attention.all_reduce", model.hidden, tp, count)


def _ffn(model: Model, block: Block, tp: int, dtype: str) -> Iterator[Op]:
    yield _stream("ffn.norm", model.hidden, 2, 2, block.count)
    ffn = block.feed_forward
    if isinstance(ffn, MoeFfn):
        yield from _experts(model, ffn, tp, dtype, block.count)
    else:
        yield from _dense(model, ffn, tp, dtype, block.count)
    yield from _all_reduce("ffn.all_reduce", model.hidden, tp, block.count)


def _dense(model: Model, ffn: DenseFfn, tp: int, dtype: str, count: int) -> Iterator[Op]:
    inner = ffn.inner // tp
    up = 2 if ffn.gated else 1
    yield from _linear("ffn.up", up * inner, model.hidden, dtype, count)
    yield _stream("ffn.activation", inner, up, 1, count)
    yield from _linear("ffn.down", model.hidden, inner, dtype, count)


def _experts(model: Model, ffn: MoeFfn, tp: int, dtype: str, count: int) -> Iterator[Op]:
    yield Gemm(name="ffn.router", m=TOKENS, n=ffn.experts, k=model.hidden, dtype=STATE, count=count)
    yield _stream("ffn.choose", ffn.experts, 1, 2 * ffn.topk / ffn.experts, count)
    yield Experts(
        name="ffn.experts",
        tokens=TOKENS,
        hidden=model.hidden,
        inner=ffn.inner // tp,
        experts=ffn.experts,
        topk=ffn.topk,
        dtype=dtype,
        count=count,
    )
    if ffn.shared_inner:
        yield from _dense(model, DenseFfn(inner=ffn.shared_inner), tp, dtype, count)


def _head(model: Model, tp: int) -> Iterator[Op]:
    yield _stream("head.norm", model.hidden, 2, 1)
    vocab = -(-model.vocab // tp)
    yield Gemm(name="head.logits", m=LOGITS, n=vocab, k=model.hidden, dtype=STATE)
    if tp > 1:
        yield Collective(
            name="head.all_gather", op="all_gather", rows=LOGITS, bytes_per_row=model.vocab * width(STATE), ranks=tp
        )
    # In fp32: written once, then read to find the largest, to sum, and to draw.
    yield Elementwise(
        name="head.sample", rows=LOGITS, read_per_row=3 * model.vocab * 4.0, written_per_row=model.vocab * 4.0
    )
