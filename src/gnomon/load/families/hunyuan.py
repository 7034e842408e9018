"""Hunyuan, dense and with experts: queries and keys are normed, and one expert is shared."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, experts, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Model


def read(config: Fields, family: str) -> Model:
    bias = config.flag("attention_bias", False)
    mixer = attention(config, qkv_bias=bias, out_bias=bias, qk_norm=True)
    if family == "hunyuan_v1_dense":
        return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=dense(config)))
    shared = config.whole("intermediate_size")
    mixture = experts(config, "num_experts", "intermediate_size", topk="moe_topk", shared_inner=shared)
    return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=mixture))
