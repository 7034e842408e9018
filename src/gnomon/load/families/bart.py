"""BART: an encoder and a decoder that share a table of tokens, with learned positions and norms behind each half."""

from __future__ import annotations

from gnomon.load.families.base import decoder, layer_count, refuse, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import (
    AttentionMixer,
    CrossAttention,
    DenseFfn,
    Embedding,
    Model,
    Norm,
    Part,
    Tower,
    VisionPreprocessor,
)

UNUSED = 2
"""Positions are counted from the one after padding, so that the tables have rows no token uses."""


def read(config: Fields, family: str) -> Model:
    refuse(config, "add_final_layer_norm", "a norm behind the last layer")
    hidden, positions = config.whole("d_model"), config.whole("max_position_embeddings")
    heads = config.whole("decoder_attention_heads")
    cross = CrossAttention(
        heads=heads,
        kv_heads=heads,
        head_dim=split(config, "d_model", heads),
        source_width=hidden,
        q_bias=True,
        key_bias=True,
        value_bias=True,
        out_bias=True,
    )
    mixer, ffn = _attention(config, "decoder", causal=True), _ffn(config, "decoder")
    layers = layer_count(config, "decoder_layers")
    return decoder(
        config,
        family,
        uniform(layers, mixer=mixer, ffn=ffn, cross=cross, norm_after=True),
        hidden=hidden,
        max_context=positions,
        learned_positions=positions + UNUSED,
        norm_bias=True,
        final_norm=False,
        stem=_norm(hidden),
        towers=(_encoder(config, hidden, positions),),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _encoder(config: Fields, hidden: int, positions: int) -> Tower:
    mixer, ffn = _attention(config, "encoder", causal=False), _ffn(config, "encoder")
    return Tower(
        name="encoder",
        hidden=hidden,
        blocks=uniform(layer_count(config, "encoder_layers"), mixer=mixer, ffn=ffn, norm_after=True),
        stem=(Embedding(name="positions", rows=positions + UNUSED, width=hidden), *_norm(hidden)),
        norm_bias=True,
        final_norm=False,
        intake=VisionPreprocessor(positions=positions),
    )


def _norm(hidden: int) -> tuple[Part, ...]:
    return (Norm(name="norm", width=hidden, bias=True),)


def _attention(config: Fields, part: str, causal: bool) -> AttentionMixer:
    heads = config.whole(f"{part}_attention_heads")
    return AttentionMixer(
        heads=heads,
        kv_heads=heads,
        head_dim=split(config, "d_model", heads),
        qkv_bias=True,
        out_bias=True,
        rotary_dim=0,
        causal=causal,
    )


def _ffn(config: Fields, part: str) -> DenseFfn:
    return DenseFfn(inner=config.whole(f"{part}_ffn_dim"), gated=False, bias=True)
