"""Phi 1 to 4: the first two with parallel blocks and biases, the later ones like Llama, one with experts."""

from __future__ import annotations

from gnomon.load.families.base import (
    attention,
    decoder,
    dense,
    experts,
    head_bias,
    head_dim_of,
    layer_count,
    rotary_dim,
    uniform,
    window_of,
)
from gnomon.load.fields import Fields
from gnomon.spec import Model


def read(config: Fields, family: str) -> Model:
    return {"phi": _first, "phi3": _third, "phimoe": _experts}[family](config, family)


def _first(config: Fields, family: str) -> Model:
    normed, rotary = config.flag("qk_layernorm", False), rotary_dim(config, head_dim_of(config), 0.5)
    mixer = attention(config, bias=True, qk_norm=normed, qk_norm_bias=normed, rotary_dim=rotary)
    ffn = dense(config, gated=False, bias=True)
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn, parallel=True, norms=1)
    return decoder(config, family, blocks, norm_bias=True, tail=head_bias(config))


def _third(config: Fields, family: str) -> Model:
    mixer = attention(config, window=window_of(config), rotary_dim=rotary_dim(config, head_dim_of(config)))
    return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=dense(config)))


def _experts(config: Fields, family: str) -> Model:
    mixer = attention(config, bias=config.flag("attention_bias", False), window=window_of(config))
    ffn = experts(config, "num_local_experts", "intermediate_size")
    tail = head_bias(config) if config.flag("lm_head_bias", False) else ()
    return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=ffn), norm_bias=True, tail=tail)
