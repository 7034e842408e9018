"""DeepSeek V2, V3 and V3.2, and those built like them (Kimi K2, GLM 4.7 Flash, GLM 5): latent attention and experts."""

from __future__ import annotations

from gnomon.load.families.base import decoder, dense, drafts, grouped_experts, layer_count, layer_kinds
from gnomon.load.fields import Fields
from gnomon.spec import Block, Indexer, LatentAttention, Model, MoeFfn

SPARSE = ("deepseek_v32", "glm_moe_dsa")
"""Families whose attention reads only the tokens its indexer selects."""


def read(config: Fields, family: str) -> Model:
    count, mixer, mixture = layer_count(config), latent(config, family), _mixture(config, family)
    plain = _dense_layers(config, count)
    blocks = [Block(mixer=mixer, ffn=dense(config) if layer in plain else mixture, count=1) for layer in range(count)]
    return decoder(config, family, blocks, mtp=drafts(config, Block(mixer=mixer, ffn=mixture, count=1)))


def latent(config: Fields, family: str) -> LatentAttention:
    indexer = None
    if family in SPARSE:
        indexer = Indexer(
            heads=config.whole("index_n_heads"),
            head_dim=config.whole("index_head_dim"),
            topk=config.whole("index_topk"),
        )
    return LatentAttention(
        heads=config.whole("num_attention_heads"),
        q_rank=config.whole("q_lora_rank") if config.has("q_lora_rank") else None,
        kv_rank=config.whole("kv_lora_rank"),
        nope_dim=config.whole("qk_nope_head_dim"),
        rope_dim=config.whole("qk_rope_head_dim"),
        value_dim=config.whole("v_head_dim"),
        bias=config.flag("attention_bias", False),
        indexer=indexer,
    )


def _mixture(config: Fields, family: str) -> MoeFfn:
    router = "softmax" if family == "deepseek_v2" else "sigmoid"
    shared = "n_shared_experts"
    return grouped_experts(config, "n_routed_experts", "moe_intermediate_size", shared=shared, router=router)


def _dense_layers(config: Fields, count: int) -> frozenset[int]:
    kinds = layer_kinds(config, count, ("dense", "sparse"), "mlp_layer_types")
    if kinds is not None:
        return frozenset(layer for layer, kind in enumerate(kinds) if kind == "dense")
    first, every = config.whole("first_k_dense_replace", 0, least=0), config.whole("moe_layer_freq", 1)
    return frozenset(layer for layer in range(count) if layer < first or layer % every)
