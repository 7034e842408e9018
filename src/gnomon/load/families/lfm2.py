"""LFM2: short gated convolutions, and attention in some layers."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
from gnomon.load.families.base import attention, decoder, experts, layer_count, layer_kinds, numbers
from gnomon.load.fields import LARGEST, Fields
from gnomon.spec import Block, DenseFfn, Model, ShortConvolution

MOST_TIMES = 1000.0
"""A feed-forward that much wider than asked for is a slip."""


def read(config: Fields, family: str) -> Model:
    tied = config.flag("tie_embedding", config.flag("tie_word_embeddings", True))
    return decoder(config, family, _layers(config, family), tied_embeddings=tied)


def _layers(config: Fields, family: str) -> Iterator[Block]:
    softmax = attention(config, qk_norm=True)
    short = ShortConvolution(
        width=config.whole("hidden_size"),
        conv=config.whole("conv_L_cache", 3),
        bias=config.flag("conv_bias", False),
    )
    moe = family == "lfm2_moe"
    plain = DenseFfn(inner=config.whole("intermediate_size") if moe else _inner(config))
    mixture = experts(config, "num_experts", "moe_intermediate_size", router="sigmoid") if moe else plain
    first = config.whole("num_dense_layers", 0, least=0) if moe else 0
    for layer, full in enumerate(_full(config, layer_count(config))):
        ffn = mixture if layer >= first else plain
        yield Block(mixer=softmax if full else short, ffn=ffn, count=1)


def _full(config: Fields, count: int) -> list[bool]:
    kinds = layer_kinds(config, count, ("conv", "full_attention"))
    if kinds is not None:
        return [kind == "full_attention" for kind in kinds]
    if not config.has("full_attn_idxs"):
        return [True] * count
    chosen = frozenset(numbers(config, "full_attn_idxs"))
    return [layer in chosen for layer in range(count)]


def _inner(config: Fields) -> int:
    """Two thirds of the width given, times a factor, rounded up to a multiple."""
    key = "block_ff_dim" if config.has("block_ff_dim") else "intermediate_size"
    inner = config.whole(key)
    if not config.flag("block_auto_adjust_ff_dim", True):
        return inner
    scaled = int(config.number("block_ffn_dim_multiplier", 1.0, most=MOST_TIMES) * int(2 * inner / 3))
    multiple = config.whole("block_multiple_of", 256)
    adjusted = multiple * -(-scaled // multiple)
    if not 1 <= adjusted <= LARGEST:
        raise InputError(f"{inner} becomes a feed-forward of {adjusted}, adjusted", where=config.spot(key))
    return adjusted
