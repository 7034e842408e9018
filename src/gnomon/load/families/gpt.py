"""GPT-2 and decoders with its ungated feed-forwards: GPT-J, GPT-NeoX, BLOOM, MPT and OPT."""

from __future__ import annotations

from gnomon.load.families.base import (
    decoder,
    dense,
    head_bias,
    head_dim_of,
    layer_count,
    multi_head,
    only,
    refuse,
    split,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import DenseFfn, Linear, Model, Norm

BLOOM_LENGTH = 2048
"""Tokens of the sequences BLOOM was trained with, where the file does not say."""
OPT_PADDING = 2
"""The first two rows of OPT's position table are for padding."""


def gpt2(config: Fields, family: str) -> Model:
    """GPT-2 and StarCoder: biases everywhere, learned positions, a tied head."""
    refuse(config, "add_cross_attention", "cross-attention")
    hidden, positions = config.whole("n_embd"), config.whole("n_positions")
    multi_query = family == "gpt_bigcode" and config.flag("multi_query", True)
    mixer = multi_head(config, "n_head", "n_embd", bias=True, **{"kv_heads": 1} if multi_query else {})
    ffn = DenseFfn(inner=config.whole("n_inner", 4 * hidden), gated=False, bias=True)
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layer"), mixer=mixer, ffn=ffn),
        hidden=hidden,
        max_context=positions,
        learned_positions=positions,
        norm_bias=True,
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def gptj(config: Fields, family: str) -> Model:
    """GPT-J: parallel attention and feed-forward behind one norm; only the feed-forward and the head have biases."""
    hidden, head_dim = config.whole("n_embd"), split(config, "n_embd", config.whole("n_head"))
    rotary = min(head_dim, config.whole("rotary_dim", head_dim))
    ffn = DenseFfn(inner=config.whole("n_inner", 4 * hidden), gated=False, bias=True)
    mixer = multi_head(config, "n_head", "n_embd", rotary_dim=rotary)
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layer"), mixer=mixer, ffn=ffn, parallel=True, norms=1),
        hidden=hidden,
        norm_bias=True,
        max_context=config.whole("n_positions"),
        tail=head_bias(config),
    )


def gpt_neox(config: Fields, family: str) -> Model:
    """GPT-NeoX and Pythia: parallel attention and feed-forward with a norm each, partial rotary embedding."""
    head_dim = head_dim_of(config)
    rotary = int(head_dim * config.number("rotary_pct", 0.25))
    mixer = multi_head(config, head_dim=head_dim, bias=config.flag("attention_bias", True), rotary_dim=rotary)
    ffn, parallel = dense(config, gated=False, bias=True), config.flag("use_parallel_residual", True)
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn, parallel=parallel)
    return decoder(config, family, blocks, norm_bias=True)


def bloom(config: Fields, family: str) -> Model:
    """BLOOM: biases everywhere, ALiBi, and a norm behind the embedding."""
    width = "n_embed" if config.has("n_embed") else "hidden_size"
    heads = "num_attention_heads" if config.has("num_attention_heads") else "n_head"
    layers = layer_count(config, "num_hidden_layers" if config.has("num_hidden_layers") else "n_layer")
    hidden, mixer = config.whole(width), multi_head(config, heads, width, bias=True, alibi=True, rotary_dim=0)
    return decoder(
        config,
        family,
        uniform(layers, mixer=mixer, ffn=DenseFfn(inner=4 * hidden, gated=False, bias=True)),
        hidden=hidden,
        norm_bias=True,
        stem=(Norm(name="norm", width=hidden, bias=True),),
        max_context=config.whole("seq_length", BLOOM_LENGTH),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def mpt(config: Fields, family: str) -> Model:
    """MPT: no biases, not even in its layer norms, and ALiBi."""
    inner = config.inner("attn_config")
    only(inner, "attn_type", ("multihead_attention",))
    refuse(inner, "qk_ln", "a norm of queries and keys")
    hidden, ratio = config.whole("d_model"), config.whole("expansion_ratio", 4)
    mixer = multi_head(config, "n_heads", "d_model", alibi=inner.flag("alibi", True), rotary_dim=0)
    return decoder(
        config,
        family,
        uniform(layer_count(config, "n_layers"), mixer=mixer, ffn=DenseFfn(inner=ratio * hidden, gated=False)),
        hidden=hidden,
        centred_norms=True,
        max_context=config.whole("max_seq_len"),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def opt(config: Fields, family: str) -> Model:
    """OPT: GPT-2's blocks under other names, padding positions, and perhaps a narrower embedding."""
    hidden, bias = config.whole("hidden_size"), config.flag("enable_bias", True)
    before = config.flag("do_layer_norm_before", True)
    affine = config.flag("layer_norm_elementwise_affine", True)
    width = config.whole("word_embed_proj_dim", hidden)
    narrow = width != hidden
    positions = config.whole("max_position_embeddings")
    mixer = multi_head(config, head_dim=head_dim_of(config), bias=bias)
    ffn = dense(config, "ffn_dim", gated=False, bias=bias)
    return decoder(
        config,
        family,
        uniform(layer_count(config), mixer=mixer, ffn=ffn, norm_after=not before),
        max_context=positions,
        learned_positions=positions + OPT_PADDING,
        norm_weight=affine,
        norm_bias=affine,
        centred_norms=True,
        final_norm=before and not config.flag("_remove_final_layer_norm", False),
        embedding_width=width if narrow else 0,
        stem=(Linear(name="widen", inputs=width, outputs=hidden),) if narrow else (),
        tail=(Linear(name="narrow", inputs=hidden, outputs=width),) if narrow else (),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )
