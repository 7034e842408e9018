"""Nemotron 3 and 4, Minitron, and Arcee: feed-forwards without a gate."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, head_dim_of, layer_count, rotary_dim, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Model


def read(config: Fields, family: str) -> Model:
    bias, head_dim = config.flag("attention_bias", False), head_dim_of(config)
    turning = rotary_dim(config, head_dim, 0.5 if family == "nemotron" else 1.0)
    mixer = attention(config, head_dim=head_dim, qkv_bias=bias, out_bias=bias, rotary_dim=turning)
    ffn = dense(config, gated=False, bias=config.flag("mlp_bias", False))
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn)
    return decoder(config, family, blocks, norm_bias=family == "nemotron")
