"""Whisper: audio through two convolutions and an encoder, text from a decoder with cross-attention."""

from __future__ import annotations

from gnomon.load.families.bart import cross, stack
from gnomon.load.families.base import decoder
from gnomon.load.fields import Fields
from gnomon.spec import ConvolutionLayer, Embedding, Model, Tower, VisionPreprocessor


def read(config: Fields, family: str) -> Model:
    hidden, positions = config.whole("d_model"), config.whole("max_target_positions")
    return decoder(
        config,
        family,
        stack(config, "decoder", key_bias=False, cross=cross(config, key_bias=False)),
        hidden=hidden,
        max_context=positions,
        learned_positions=positions,
        norm_bias=True,
        towers=(_encoder(config, hidden),),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _encoder(config: Fields, hidden: int) -> Tower:
    positions = config.whole("max_source_positions")
    return Tower(
        name="encoder",
        hidden=hidden,
        blocks=stack(config, "encoder", key_bias=False),
        stem=(
            ConvolutionLayer(name="bins", inputs=config.whole("num_mel_bins"), outputs=hidden, kernel=3, bias=True),
            ConvolutionLayer(name="halve", inputs=hidden, outputs=hidden, kernel=3, bias=True, stride=2),
            Embedding(name="positions", rows=positions, width=hidden),
        ),
        norm_bias=True,
        intake=VisionPreprocessor(positions=positions),
    )
