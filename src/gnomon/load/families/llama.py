"""Llama and those built like it: norms without bias, rotary positions, gated feed-forwards."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Model

WITH_WINDOW = ("mistral", "ministral3")
"""All their layers slide where the file has a window."""
WITHOUT_OUT_BIAS = ("mistral", "ministral3")


def read(config: Fields, family: str) -> Model:
    bias = config.flag("attention_bias", family == "seed_oss")
    window = config.whole("sliding_window") if family in WITH_WINDOW and config.has("sliding_window") else None
    out_bias = config.flag("attention_out_bias", False) if family == "seed_oss" else bias
    mixer = attention(config, qkv_bias=bias, out_bias=out_bias and family not in WITHOUT_OUT_BIAS, window=window)
    ffn = dense(config, bias=family not in WITHOUT_OUT_BIAS and config.flag("mlp_bias", False))
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn)
    # Granite multiplies its embedding, its residuals and its logits by numbers of its own.
    return decoder(config, family, blocks, scaled_embedding=family == "granite")
