"""Decoders with experts in all layers, or in all but the first: Mixtral, Hunyuan, dots.llm1, DBRX and gpt-oss."""

from __future__ import annotations

from gnomon.load.families.base import (
    attention,
    check_shared,
    decoder,
    dense,
    experts,
    head_dim_of,
    layer_count,
    multi_head,
    uniform,
    window_of,
    windows,
)
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model

GPT_OSS_HEAD_DIM = 64
"""The default of the published config class."""


def mixtral(config: Fields, family: str) -> Model:
    """Mixtral: Mistral's attention, and experts in every layer."""
    mixer, ffn = attention(config, window=window_of(config)), experts(config, "num_local_experts", "intermediate_size")
    return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=ffn))


def hunyuan(config: Fields, family: str) -> Model:
    """Hunyuan, dense or with experts: normed queries and keys, and one shared expert."""
    mixer = attention(config, bias=config.flag("attention_bias", False), qk_norm=True)
    if family == "hunyuan_v1_dense":
        return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=dense(config)))
    shared = config.whole("intermediate_size")
    mixture = experts(config, "num_experts", "intermediate_size", topk="moe_topk", shared_inner=shared)
    return decoder(config, family, uniform(layer_count(config), mixer=mixer, ffn=mixture))


def dots(config: Fields, family: str) -> Model:
    """dots.llm1: normed queries and keys, experts in all but the first layers."""
    count, first = layer_count(config), config.whole("first_k_dense_replace", 0, least=0)
    mixer = attention(config, bias=config.flag("attention_bias", False), qk_norm=True)
    mixture = experts(config, "n_routed_experts", "moe_intermediate_size", shared="n_shared_experts", router="sigmoid")
    blocks = [Block(mixer=mixer, ffn=dense(config) if layer < first else mixture, count=1) for layer in range(count)]
    return decoder(config, family, blocks)


def dbrx(config: Fields, family: str) -> Model:
    """DBRX: sixteen experts and layer norms without bias, under field names of its own."""
    inner, kv_heads = config.inner("attn_config"), config.inner("attn_config").whole("kv_n_heads")
    check_shared(config.whole("n_heads"), kv_heads, inner.spot("kv_n_heads"))
    mixer = multi_head(config, "n_heads", "d_model", kv_heads=kv_heads)
    ffn = experts(config.inner("ffn_config"), "moe_num_experts", "ffn_hidden_size", topk="moe_top_k")
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layers"), mixer=mixer, ffn=ffn),
        hidden=config.whole("d_model"),
        centred_norms=True,
        max_context=config.whole("max_seq_len"),
    )


def gpt_oss(config: Fields, family: str) -> Model:
    """gpt-oss: attention sinks, sliding windows in every other layer, experts with biases."""
    ffn = experts(config, "num_local_experts", "intermediate_size", bias=True, router_bias=True)
    bias, head_dim = config.flag("attention_bias", True), head_dim_of(config, GPT_OSS_HEAD_DIM)
    blocks = []
    for window in windows(config, layer_count(config), 2):
        mixer = attention(config, head_dim=head_dim, bias=bias, sinks=True, window=window)
        blocks.append(Block(mixer=mixer, ffn=ffn, count=1))
    return decoder(config, family, blocks)
