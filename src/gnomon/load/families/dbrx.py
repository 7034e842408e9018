"""DBRX: sixteen experts and layer norms without bias; its fields stand under names of their own."""

from __future__ import annotations

from gnomon.load.families.base import check_shared, decoder, experts, layer_count, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, Model


def read(config: Fields, family: str) -> Model:
    inner, mixture = config.inner("attn_config"), config.inner("ffn_config")
    heads, kv_heads = config.whole("n_heads"), inner.whole("kv_n_heads")
    check_shared(heads, kv_heads, inner.spot("kv_n_heads"))
    mixer = AttentionMixer(heads=heads, kv_heads=kv_heads, head_dim=split(config, "d_model", heads))
    ffn = experts(mixture, "moe_num_experts", "ffn_hidden_size", topk="moe_top_k")
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layers"), mixer=mixer, ffn=ffn),
        hidden=config.whole("d_model"),
        centred_norms=True,
        max_context=config.whole("max_seq_len"),
    )
