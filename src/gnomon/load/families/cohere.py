"""Command R, R+ and R7B: both halves read one norm, and the embedding is also the head."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import attention, decoder, dense, head_dim_of, layer_count, windows
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model


def read(config: Fields, family: str) -> Model:
    # The first ones say 8,192 positions and mean the default, not the most.
    longest = "model_max_length" if config.has("model_max_length") else "max_position_embeddings"
    return decoder(
        config,
        family,
        _layers(config, family),
        centred_norms=True,
        max_context=config.whole(longest),
        tied_embeddings=config.flag("tie_word_embeddings", True),
    )


def _layers(config: Fields, family: str) -> Iterator[Block]:
    bias, head_dim = config.flag("attention_bias", False), head_dim_of(config)
    count, ffn = layer_count(config), dense(config)
    normed = family == "cohere" and config.flag("use_qk_norm", False)
    period = config.whole("sliding_window_pattern", 4)
    for window in windows(config, count, period) if family == "cohere2" else [None] * count:
        mixer = attention(
            config,
            head_dim=head_dim,
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=normed,
            qk_norm_whole=normed,
            window=window,
            # Where layers slide, those that see everything have no positions.
            rotary_dim=0 if family == "cohere2" and window is None else None,
        )
        yield Block(mixer=mixer, ffn=ffn, count=1, parallel=True, norms=1)
