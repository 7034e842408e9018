"""GLM 4: half of each head is rotary; the dense models of 2025 have post-norms too; the larger ones have experts."""

from __future__ import annotations

from gnomon.load.families.base import (
    attention,
    decoder,
    dense,
    drafts,
    experts,
    head_dim_of,
    layer_count,
    rotary_dim,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, Block, Model


def read(config: Fields, family: str) -> Model:
    if family == "glm4_moe":
        return _sparse(config, family)
    norms = 4 if family == "glm4" else 2
    blocks = uniform(layer_count(config), mixer=_mixer(config, True), ffn=dense(config), norms=norms)
    return decoder(config, family, blocks)


def _mixer(config: Fields, bias: bool) -> AttentionMixer:
    return attention(
        config,
        qkv_bias=config.flag("attention_bias", bias),
        qk_norm=config.flag("use_qk_norm", False),
        rotary_dim=rotary_dim(config, head_dim_of(config), 0.5),
    )


def _sparse(config: Fields, family: str) -> Model:
    mixer, count = _mixer(config, False), layer_count(config)
    first = config.whole("first_k_dense_replace", 1, least=0)
    mixture = experts(config, "n_routed_experts", "moe_intermediate_size", shared="n_shared_experts", router="sigmoid")
    blocks = [Block(mixer=mixer, ffn=dense(config) if layer < first else mixture, count=1) for layer in range(count)]
    return decoder(config, family, blocks, mtp=drafts(config, Block(mixer=mixer, ffn=mixture, count=1)))
