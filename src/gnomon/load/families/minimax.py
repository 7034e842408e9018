"""MiniMax: the first ones mix linear and softmax attention, the second has softmax attention only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.errors import InputError
from gnomon.load.families.base import (
    attention,
    decoder,
    experts,
    head_dim_of,
    layer_count,
    layer_kinds,
    numbers,
    rotary_dim,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import Block, LightningAttention, Model

LINEAR, FULL = "linear_attention", "full_attention"


def read(config: Fields, family: str) -> Model:
    return _second(config, family) if family == "minimax_m2" else decoder(config, family, _layers(config))


def _layers(config: Fields) -> Iterator[Block]:
    head_dim, heads = head_dim_of(config), config.whole("num_attention_heads")
    ffn = experts(config, "num_local_experts", "intermediate_size")
    full = attention(config, head_dim=head_dim, rotary_dim=_turning(config, head_dim))
    linear = LightningAttention(heads=heads, head_dim=head_dim, block=config.whole("block_size", 256))
    for kind in _kinds(config, layer_count(config)):
        yield Block(mixer=full if kind == FULL else linear, ffn=ffn, count=1)


def _turning(config: Fields, head_dim: int) -> int | None:
    if config.has("rotary_dim"):
        return config.whole("rotary_dim")
    return rotary_dim(config, head_dim)


def _kinds(config: Fields, count: int) -> list[str]:
    """The native files name each layer's kind, the first ones number it: 0 linear, 1 softmax."""
    if not config.has("attn_type_list"):
        kinds = layer_kinds(config, count, (LINEAR, FULL))
        if kinds is None:
            raise InputError("is missing", where=config.spot("layer_types"))
        return kinds
    found = numbers(config, "attn_type_list")
    if len(found) != count or max(found, default=0) > 1:
        raise InputError(f"is not a 0 or 1 for each of {count} layers", where=config.spot("attn_type_list"))
    return [FULL if kind else LINEAR for kind in found]


def _second(config: Fields, family: str) -> Model:
    head_dim, normed = head_dim_of(config), config.flag("use_qk_norm", True)
    turning = config.whole("rotary_dim", head_dim)
    mixer = attention(config, head_dim=head_dim, qk_norm=normed, qk_norm_whole=normed, rotary_dim=turning)
    # vLLM holds the router's matrix in fp32 and widens tokens for it (`MiniMaxM2MoE.gate`).
    ffn = replace(experts(config, "num_local_experts", "intermediate_size", router="sigmoid"), router_dtype="fp32")
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn)
    return decoder(config, family, blocks)
