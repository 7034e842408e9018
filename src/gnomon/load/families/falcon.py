"""Falcon: attention and feed-forward side by side, one key-value head or a few."""

from __future__ import annotations

from gnomon.errors import InputError
from gnomon.load.families.base import check_shared, decoder, layer_count, multi_head, uniform
from gnomon.load.fields import Fields
from gnomon.spec import DenseFfn, Model

TRAINED_LENGTH = 2048


def read(config: Fields, family: str) -> Model:
    width = "hidden_size" if config.has("hidden_size") else "n_embed"
    hidden, new = config.whole(width), config.flag("new_decoder_architecture", False)
    alibi, bias = config.flag("alibi", False), config.flag("bias", False)
    heads = "num_attention_heads" if config.has("num_attention_heads") else "n_head"
    kv_heads = _kv_heads(config, config.whole(heads), new)
    mixer = multi_head(config, heads, width, bias=bias, kv_heads=kv_heads, alibi=alibi, rotary_dim=0 if alibi else None)
    ffn = DenseFfn(inner=config.whole("ffn_hidden_size", 4 * hidden), gated=False, bias=bias)
    parallel = new or config.flag("parallel_attn", True)
    blocks = uniform(
        layer_count(config, "num_hidden_layers" if config.has("num_hidden_layers") else "n_layer"),
        mixer=mixer,
        ffn=ffn,
        parallel=parallel,
        norms=_norms(config, new) if parallel else 2,
    )
    return decoder(
        config,
        family,
        blocks,
        hidden=hidden,
        norm_bias=True,
        max_context=config.whole("max_position_embeddings", TRAINED_LENGTH),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _kv_heads(config: Fields, heads: int, new: bool) -> int:
    if not new and config.flag("multi_query", True):
        return 1
    groups = "num_kv_heads" if config.has("num_kv_heads") or not config.has("n_head_kv") else "n_head_kv"
    kv_heads = config.whole(groups, heads) if new else heads
    check_shared(heads, kv_heads, config.spot(groups))
    return kv_heads


def _norms(config: Fields, new: bool) -> int:
    norms = config.whole("num_ln_in_parallel_attn", 2 if new else 1)
    if norms > 2:
        raise InputError(f"{norms} is not 1 or 2 norms", where=config.spot("num_ln_in_parallel_attn"))
    return norms if new else 1
