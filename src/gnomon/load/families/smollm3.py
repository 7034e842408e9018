"""SmolLM3: Llama's layers, a quarter of which have no positions."""

from __future__ import annotations

from gnomon.load.families.base import attention, decoder, dense, layer_count, layer_kinds, turned_layers
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model


def read(config: Fields, family: str) -> Model:
    bias, count = config.flag("attention_bias", False), layer_count(config)
    ffn = dense(config, bias=config.flag("mlp_bias", False))
    slides = config.flag("use_sliding_window", False) and config.has("sliding_window")
    kinds = layer_kinds(config, count, ("sliding_attention", "full_attention"))
    blocks = []
    for layer, turned in enumerate(turned_layers(config, count)):
        near = slides and (kinds[layer] == "sliding_attention" if kinds else not turned)
        mixer = attention(
            config,
            qkv_bias=bias,
            out_bias=bias,
            rotary_dim=None if turned else 0,
            window=config.whole("sliding_window") if near else None,
        )
        blocks.append(Block(mixer=mixer, ffn=ffn, count=1))
    return decoder(config, family, blocks, tied_embeddings=config.flag("tie_word_embeddings", True))
