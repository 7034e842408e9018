"""Mixtral: Mistral's attention, and experts in every layer."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, experts, layer_count, uniform
from gnomon.load.fields import Fields
from gnomon.spec import Model


def read(config: Fields, family: str) -> Model:
    window = config.whole("sliding_window") if config.has("sliding_window") else None
    ffn = experts(config, "num_local_experts", "intermediate_size")
    blocks = uniform(layer_count(config), mixer=attention(config, window=window), ffn=ffn)
    return decoder(config, family, blocks)
