"""Qwen3-Next: the gated delta rule in three layers of four, gated attention in the fourth, many small experts."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import (
    attention,
    check_shared,
    decoder,
    dense,
    experts,
    head_dim_of,
    layer_count,
    layer_kinds,
    numbers,
    rotary_dim,
)
from gnomon.load.fields import Fields
from gnomon.spec import Block, GatedDelta, Model, MoeFfn

LINEAR, FULL = "linear_attention", "full_attention"


def read(config: Fields, family: str) -> Model:
    return decoder(config, family, layers(config))


def layers(config: Fields, *, sparse: bool = True) -> Iterator[Block]:
    count, bias, head_dim = layer_count(config), config.flag("attention_bias", False), head_dim_of(config)
    softmax = attention(
        config,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
        output_gate=True,
        rotary_dim=rotary_dim(config, head_dim, 0.25),
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
    where = _sparse(config, count) if sparse else [False] * count
    mixture = _mixture(config) if any(where) else None
    plain = None if all(where) else dense(config)
    for layer, kind in enumerate(kinds):
        yield Block(mixer=softmax if kind == FULL else delta, ffn=mixture if where[layer] else plain, count=1)


def _mixture(config: Fields) -> MoeFfn:
    shared = config.whole("shared_expert_intermediate_size")
    return experts(config, "num_experts", "moe_intermediate_size", shared_inner=shared, shared_gate=True)


def _sparse(config: Fields, count: int) -> list[bool]:
    dense_ones, step = frozenset(numbers(config, "mlp_only_layers")), config.whole("decoder_sparse_step", 1)
    return [layer not in dense_ones and (layer + 1) % step == 0 for layer in range(count)]
