"""Gemma 1, 2 and 3: scaled embeddings, wide heads, from the second on a norm before and behind each half."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gnomon.load.families import siglip
from gnomon.load.families.base import attention, decoder, dense, dtype, layer_count, windows
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model

PERIOD = {"gemma2": 2, "gemma3_text": 6}
"""Every second, or every sixth layer has full attention."""
GEMMA3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
"""Defaults of the published config class, which the files of the 4B, 12B and 27B models leave out."""

GEMMA3_IMAGE_TOKENS = 256


def read(config: Fields, family: str) -> Model:
    if family != "gemma3":
        return _text(config, family)
    text = config.inner("text_config").filled(GEMMA3)
    tokens = config.whole("mm_tokens_per_image", GEMMA3_IMAGE_TOKENS)
    tower = siglip.vision(config.inner("vision_config"), text.whole("hidden_size"), tokens)
    return _text(text, family, towers=(tower,), dtype=dtype(config))


def _text(config: Fields, family: str, **features: Any) -> Model:
    features.setdefault("tied_embeddings", config.flag("tie_word_embeddings", True))
    if family != "gemma" and config.has("final_logit_softcapping"):
        features.setdefault("head_cap", config.number("final_logit_softcapping"))
    return decoder(config, family, _layers(config, family), scaled_embedding=True, **features)


def _layers(config: Fields, family: str) -> Iterator[Block]:
    count, ffn = layer_count(config), dense(config)
    third = family in ("gemma3", "gemma3_text")
    capped = family != "gemma" and config.has("attn_logit_softcapping")
    cap = config.number("attn_logit_softcapping") if capped else None
    bias = config.flag("attention_bias", False)
    for window in _windows(config, family, count):
        mixer = attention(config, bias=bias, qk_norm=third, window=window, logit_cap=cap)
        yield Block(mixer=mixer, ffn=ffn, count=1, norms=2 if family == "gemma" else 4)


def _windows(config: Fields, family: str, count: int) -> list[int | None]:
    if family == "gemma":
        return [None] * count
    return windows(config, count, config.whole("sliding_window_pattern", PERIOD.get(family, 6)))
