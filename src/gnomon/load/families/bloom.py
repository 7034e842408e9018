"""BLOOM: biases everywhere, distances in the place of positions, and a norm behind the embedding."""

from __future__ import annotations

from gnomon.load.families.base import decoder, layer_count, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, DenseFfn, Model, Norm

TRAINED_LENGTH = 2048
"""Tokens of the sequences it was trained with, where the file does not say."""


def read(config: Fields, family: str) -> Model:
    width = "n_embed" if config.has("n_embed") else "hidden_size"
    heads_key = "num_attention_heads" if config.has("num_attention_heads") else "n_head"
    hidden, heads = config.whole(width), config.whole(heads_key)
    mixer = AttentionMixer(
        heads=heads,
        kv_heads=heads,
        head_dim=split(config, width, heads),
        qkv_bias=True,
        out_bias=True,
        alibi=True,
        rotary_dim=0,
    )
    layers = layer_count(config, "num_hidden_layers" if config.has("num_hidden_layers") else "n_layer")
    return decoder(
        config,
        family,
        uniform(layers, mixer=mixer, ffn=DenseFfn(inner=4 * hidden, gated=False, bias=True)),
        hidden=hidden,
        norm_bias=True,
        stem=(Norm(name="norm", width=hidden, bias=True),),
        max_context=config.whole("seq_length", TRAINED_LENGTH),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )
