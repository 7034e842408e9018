"""dots.llm1: normed queries and keys, experts but for the first layers."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, experts, head_dim_of, layer_count
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model


def read(config: Fields, family: str) -> Model:
    bias, count = config.flag("attention_bias", False), layer_count(config)
    mixer = attention(config, head_dim=head_dim_of(config), qkv_bias=bias, out_bias=bias, qk_norm=True)
    mixture = experts(
        config,
        "n_routed_experts",
        "moe_intermediate_size",
        shared_inner=config.whole("moe_intermediate_size") * config.whole("n_shared_experts", 0, least=0),
        router="sigmoid",
    )
    first = config.whole("first_k_dense_replace", 0, least=0)
    blocks = [Block(mixer=mixer, ffn=dense(config) if layer < first else mixture, count=1) for layer in range(count)]
    return decoder(config, family, blocks)
