"""Command R, R+ and R7B: parallel attention and feed-forward behind one norm, tied embeddings."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import attention, decoder, dense, layer_count, windows
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model


def read(config: Fields, family: str) -> Model:
    # The first files give 8,192 positions as the default, not as the maximum.
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
    bias = config.flag("attention_bias", False)
    count, ffn = layer_count(config), dense(config)
    normed = family == "cohere" and config.flag("use_qk_norm", False)
    period = config.whole("sliding_window_pattern", 4)
    for window in windows(config, count, period) if family == "cohere2" else [None] * count:
        mixer = attention(
            config,
            bias=bias,
            qk_norm=normed,
            qk_norm_whole=normed,
            window=window,
            # Next to sliding windows, layers with full attention have no positions.
            rotary_dim=0 if family == "cohere2" and window is None else None,
        )
        yield Block(mixer=mixer, ffn=ffn, count=1, parallel=True, norms=1)
