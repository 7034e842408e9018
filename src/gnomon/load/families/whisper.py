"""Whisper: sound through two convolutions and an encoder, text from a decoder that looks at it."""

from __future__ import annotations

from gnomon.load.families.base import decoder, layer_count, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import (
    AttentionMixer,
    ConvolutionLayer,
    CrossAttention,
    DenseFfn,
    Embedding,
    Model,
    Tower,
    VisionPreprocessor,
)


def read(config: Fields, family: str) -> Model:
    hidden, positions = config.whole("d_model"), config.whole("max_target_positions")
    heads = config.whole("decoder_attention_heads")
    cross = CrossAttention(
        heads=heads,
        kv_heads=heads,
        head_dim=split(config, "d_model", heads),
        source_width=hidden,
        q_bias=True,
        value_bias=True,
        out_bias=True,
    )
    mixer, ffn = _attention(config, "decoder", causal=True), _ffn(config, "decoder")
    return decoder(
        config,
        family,
        uniform(layer_count(config, "decoder_layers"), mixer=mixer, ffn=ffn, cross=cross),
        hidden=hidden,
        max_context=positions,
        learned_positions=positions,
        norm_bias=True,
        towers=(_encoder(config, hidden),),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _encoder(config: Fields, hidden: int) -> Tower:
    mixer, ffn = _attention(config, "encoder", causal=False), _ffn(config, "encoder")
    positions = config.whole("max_source_positions")
    return Tower(
        name="encoder",
        hidden=hidden,
        blocks=uniform(layer_count(config, "encoder_layers"), mixer=mixer, ffn=ffn),
        stem=(
            ConvolutionLayer(name="bins", inputs=config.whole("num_mel_bins"), outputs=hidden, kernel=3, bias=True),
            ConvolutionLayer(name="halve", inputs=hidden, outputs=hidden, kernel=3, bias=True, stride=2),
            Embedding(name="positions", rows=positions, width=hidden),
        ),
        norm_bias=True,
        intake=VisionPreprocessor(positions=positions),
    )


def _attention(config: Fields, part: str, causal: bool) -> AttentionMixer:
    heads = config.whole(f"{part}_attention_heads")
    return AttentionMixer(
        heads=heads,
        kv_heads=heads,
        head_dim=split(config, "d_model", heads),
        qkv_bias=True,
        key_bias=False,
        out_bias=True,
        rotary_dim=0,
        causal=causal,
    )


def _ffn(config: Fields, part: str) -> DenseFfn:
    return DenseFfn(inner=config.whole(f"{part}_ffn_dim"), gated=False, bias=True)
