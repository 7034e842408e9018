"""Phi 1 to 4: the first two side by side with biases, the later ones built like Llama, one with experts."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, experts, head_dim_of, layer_count, rotary_dim, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Embedding, Model


def read(config: Fields, family: str) -> Model:
    return {"phi": _first, "phi3": _third, "phimoe": _experts}[family](config, family)


def _first(config: Fields, family: str) -> Model:
    normed, head_dim = config.flag("qk_layernorm", False), head_dim_of(config)
    mixer = attention(
        config,
        head_dim=head_dim,
        qkv_bias=True,
        out_bias=True,
        qk_norm=normed,
        qk_norm_bias=normed,
        rotary_dim=rotary_dim(config, head_dim, 0.5),
    )
    ffn = dense(config, gated=False, bias=True)
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn, parallel=True, norms=1)
    return decoder(config, family, blocks, norm_bias=True, tail=(_head_bias(config),))


def _third(config: Fields, family: str) -> Model:
    window = config.whole("sliding_window") if config.has("sliding_window") else None
    head_dim = head_dim_of(config)
    mixer = attention(config, head_dim=head_dim, window=window, rotary_dim=rotary_dim(config, head_dim))
    return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=dense(config)))


def _experts(config: Fields, family: str) -> Model:
    bias = config.flag("attention_bias", False)
    window = config.whole("sliding_window") if config.has("sliding_window") else None
    mixer = attention(config, qkv_bias=bias, out_bias=bias, window=window)
    ffn = experts(config, "num_local_experts", "intermediate_size")
    tail = (_head_bias(config),) if config.flag("lm_head_bias", False) else ()
    return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=ffn), norm_bias=True, tail=tail)


def _head_bias(config: Fields) -> Embedding:
    return Embedding(name="head_bias", width=config.whole("vocab_size"))
