"""T5: an encoder and a decoder that share a table of tokens; distances are learned in the first layer of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gnomon.errors import InputError
from gnomon.load.families.base import decoder, gather, layer_count, multi_head
from gnomon.load.fields import Fields
from gnomon.spec import Block, CrossAttention, DenseFfn, Model, Tower, VisionPreprocessor

TRAINED_LENGTH = 512
"""Tokens of the sequences it was trained with, where the file does not say."""


def read(config: Fields, family: str) -> Model:
    hidden, count = config.whole("d_model"), layer_count(config, "num_layers")
    below = layer_count(config, "num_decoder_layers") if config.has("num_decoder_layers") else count
    cross = CrossAttention(
        heads=config.whole("num_heads"),
        kv_heads=config.whole("num_heads"),
        head_dim=config.whole("d_kv"),
        source_width=hidden,
    )
    longest = config.whole("n_positions", TRAINED_LENGTH)
    encoder = Tower(
        name="encoder",
        hidden=hidden,
        blocks=gather(_layers(config, count, causal=False)),
        intake=VisionPreprocessor(positions=longest),
    )
    return decoder(
        config,
        family,
        [replace(block, cross=cross) for block in _layers(config, below, causal=True)],
        hidden=hidden,
        max_context=longest,
        towers=(encoder,),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _layers(config: Fields, count: int, causal: bool) -> Iterator[Block]:
    buckets, head_dim = config.whole("relative_attention_num_buckets", 32), config.whole("d_kv")
    ffn = DenseFfn(inner=config.whole("d_ff"), gated=_gated(config))
    for layer in range(count):
        rows = 0 if layer else buckets
        mixer = multi_head(config, "num_heads", head_dim=head_dim, rotary_dim=0, relative_buckets=rows, causal=causal)
        yield Block(mixer=mixer, ffn=ffn, count=1)


def _gated(config: Fields) -> bool:
    words = config.text("feed_forward_proj", "relu").split("-")
    if len(words) > 2 or (len(words) == 2 and words[0] != "gated"):
        message = f"'{'-'.join(words)}' is not supported"
        raise InputError(message, where=config.spot("feed_forward_proj"), hint="Use relu or gated-gelu.")
    return words[0] == "gated"
