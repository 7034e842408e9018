"""Qwen3-Next: the gated delta rule in three layers of four, gated attention in the fourth, many small experts."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import (
    attention,
    check_shared,
    decoder,
    dense,
    head_dim_of,
    layer_count,
    layer_kinds,
    rotary_dim,
)
from gnomon.load.families.qwen import gated_shared_experts, sparse_layers
from gnomon.load.fields import Fields
from gnomon.spec import Block, GatedDelta, Model

LINEAR, FULL = "linear_attention", "full_attention"


def read(config: Fields, family: str) -> Model:
    return decoder(config, family, layers(config))


def layers(config: Fields, *, sparse: bool = True) -> Iterator[Block]:
    count, bias = layer_count(config), config.flag("attention_bias", False)
    softmax = attention(
        config,
        bias=bias,
        qk_norm=True,
        output_gate=True,
        rotary_dim=rotary_dim(config, head_dim_of(config), 0.25),
    )
    delta = GatedDelta(
        key_heads=config.whole("linear_num_key_heads"),
        value_heads=config.whole("linear_num_value_heads"),
        key_dim=config.whole("linear_key_head_dim"),
        value_dim=config.whole("linear_value_head_dim"),
        conv=config.whole("linear_conv_kernel_dim", 4),
    )
    check_shared(delta.value_heads, delta.key_heads, config.spot("linear_num_key_heads"), "value heads", "key heads")
    every = config.whole("full_attention_interval", 4)
    kinds = layer_kinds(config, count, (LINEAR, FULL))
    if kinds is None:
        kinds = [LINEAR if (layer + 1) % every else FULL for layer in range(count)]
    where = sparse_layers(config, count) if sparse else [False] * count
    mixture = gated_shared_experts(config) if any(where) else None
    plain = None if all(where) else dense(config)
    for layer, kind in enumerate(kinds):
        yield Block(mixer=softmax if kind == FULL else delta, ffn=mixture if where[layer] else plain, count=1)
