"""Granite with experts, and Granite 4, which has state spaces in most layers too."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import attention, check_shared, decoder, experts, layer_count, layer_kinds, uniform
from gnomon.load.families.mamba import check_inner
from gnomon.load.fields import Fields
from gnomon.spec import Block, DenseFfn, Mamba2, Model, MoeFfn

KINDS = {"mamba": False, "linear_attention": False, "attention": True, "full_attention": True}
"""Which kinds of layers have attention; the first files wrote attention and mamba."""


def read(config: Fields, family: str) -> Model:
    if family == "granitemoehybrid":
        return decoder(config, family, _layers(config), scaled_embedding=True)
    bias = config.flag("attention_bias", False)
    shared = config.whole("shared_intermediate_size", 0, least=0) if family == "granitemoeshared" else 0
    mixture = experts(config, "num_local_experts", "intermediate_size", shared_inner=shared)
    blocks = uniform(layer_count(config), mixer=attention(config, bias=bias), ffn=mixture)
    return decoder(config, family, blocks, scaled_embedding=True)


def _layers(config: Fields) -> Iterator[Block]:
    bias, rotary = config.flag("attention_bias", False), config.text("position_embedding_type", "nope") == "rope"
    softmax = attention(config, bias=bias, rotary_dim=None if rotary else 0)
    kinds, ffn = _kinds(config), _ffn(config)
    space = None if all(kinds) else _space(config)
    for full in kinds:
        yield Block(mixer=softmax if full else space, ffn=ffn, count=1)


def _ffn(config: Fields) -> DenseFfn | MoeFfn:
    """The shared expert alone, where there are no others."""
    shared = config.whole("shared_intermediate_size")
    if not config.whole("num_local_experts", 0, least=0):
        return DenseFfn(inner=shared)
    return experts(config, "num_local_experts", "intermediate_size", shared_inner=shared)


def _kinds(config: Fields) -> list[bool]:
    count, key = layer_count(config), "layer_types" if config.has("layer_types") else "layers_block_type"
    kinds = layer_kinds(config, count, tuple(KINDS), key)
    return [False] * count if kinds is None else [KINDS[kind] for kind in kinds]


def _space(config: Fields) -> Mamba2:
    heads = config.whole("mamba_n_heads")
    given = config.raw("mamba_d_head", "auto")
    expand = config.whole("mamba_expand", 2)
    shared = max(1, expand * config.whole("hidden_size") // heads)
    mixer = Mamba2(
        heads=heads,
        head_dim=shared if given == "auto" else config.whole("mamba_d_head"),
        state=config.whole("mamba_d_state"),
        groups=config.whole("mamba_n_groups", 1),
        conv=config.whole("mamba_d_conv", 4),
        chunk=config.whole("mamba_chunk_size", 256),
        conv_bias=config.flag("mamba_conv_bias", True),
        bias=config.flag("mamba_proj_bias", False),
    )
    check_inner(config, mixer, "mamba_expand", "mamba_n_heads")
    check_shared(mixer.heads, mixer.groups, config.spot("mamba_n_groups"), of="groups")
    return mixer
