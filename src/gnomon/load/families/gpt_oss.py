"""gpt-oss: a sink in every head, windows in every other layer, experts with biases."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import attention, decoder, experts, head_dim_of, layer_count, windows
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model

HEAD_DIM = 64
"""The default of the published config class."""


def read(config: Fields, family: str) -> Model:
    return decoder(config, family, _layers(config))


def _layers(config: Fields) -> Iterator[Block]:
    ffn = experts(config, "num_local_experts", "intermediate_size", bias=True, router_bias=True)
    bias, head_dim = config.flag("attention_bias", True), head_dim_of(config, HEAD_DIM)
    for window in windows(config, layer_count(config), 2):
        mixer = attention(config, head_dim=head_dim, qkv_bias=bias, out_bias=bias, sinks=True, window=window)
        yield Block(mixer=mixer, ffn=ffn, count=1)
