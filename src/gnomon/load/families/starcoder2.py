"""StarCoder2: biases and layer norms as GPT-2 has them, grouped heads and a window as Mistral."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Model


def read(config: Fields, family: str) -> Model:
    bias = config.flag("use_bias", True)
    window = config.whole("sliding_window") if config.has("sliding_window") else None
    mixer = attention(config, qkv_bias=bias, out_bias=bias, window=window)
    blocks = uniform(layer_count(config), mixer=mixer, ffn=dense(config, gated=False, bias=bias))
    tied = config.flag("tie_word_embeddings", True)
    return decoder(config, family, blocks, norm_bias=True, tied_embeddings=tied)
