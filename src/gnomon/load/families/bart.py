"""BART: an encoder and a decoder that share a table of tokens, with learned positions and norms behind each half."""

from __future__ import annotations

from typing import Any

from gnomon.load.families.base import decoder, dense, layer_count, multi_head, refuse, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Block, CrossAttention, Embedding, Model, Norm, Part, Tower, VisionPreprocessor

UNUSED = 2
"""Positions are counted from the one after padding, so that the tables have rows no token uses."""


def read(config: Fields, family: str) -> Model:
    refuse(config, "add_final_layer_norm", "a norm behind the last layer")
    hidden, positions = config.whole("d_model"), config.whole("max_position_embeddings")
    blocks = stack(config, "decoder", key_bias=True, norm_after=True, cross=cross(config, key_bias=True))
    return decoder(
        config,
        family,
        blocks,
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
    return Tower(
        name="encoder",
        hidden=hidden,
        blocks=stack(config, "encoder", key_bias=True, norm_after=True),
        stem=(Embedding(name="positions", rows=positions + UNUSED, width=hidden), *_norm(hidden)),
        norm_bias=True,
        final_norm=False,
        intake=VisionPreprocessor(positions=positions),
    )


def _norm(hidden: int) -> tuple[Part, ...]:
    return (Norm(name="norm", width=hidden, bias=True),)


def stack(config: Fields, part: str, *, key_bias: bool, **parts: Any) -> tuple[Block, ...]:
    """The layers of the `encoder` or the `decoder`."""
    mixer = multi_head(
        config,
        f"{part}_attention_heads",
        "d_model",
        bias=True,
        key_bias=key_bias,
        rotary_dim=0,
        causal=part == "decoder",
    )
    ffn = dense(config, f"{part}_ffn_dim", gated=False, bias=True)
    return uniform(layer_count(config, f"{part}_layers"), mixer=mixer, ffn=ffn, **parts)


def cross(config: Fields, *, key_bias: bool) -> CrossAttention:
    """Attention of the decoder to the encoder's output."""
    heads = config.whole("decoder_attention_heads")
    return CrossAttention(
        heads=heads,
        kv_heads=heads,
        head_dim=split(config, "d_model", heads),
        source_width=config.whole("d_model"),
        q_bias=True,
        key_bias=key_bias,
        value_bias=True,
        out_bias=True,
    )
