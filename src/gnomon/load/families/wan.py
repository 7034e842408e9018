"""Wan as diffusers writes it: patches of a video, and layers modulated by the time that also attend to a text."""

from __future__ import annotations

from math import prod

from gnomon.errors import InputError
from gnomon.load.families.base import decoder, layer_count, multi_head, only, uniform
from gnomon.load.families.dit import TIME_CHANNELS
from gnomon.load.fields import Fields, shown
from gnomon.spec import (
    ConvolutionLayer,
    CrossAttention,
    DenseFfn,
    Embedding,
    Linear,
    Model,
    Modulation,
    Tower,
    VisionPreprocessor,
)

TEXT_TOKENS = 512
"""Tokens of a text, padded to that (Wan et al. 2025; `text_len` of the published code)."""
TRAINED_PATCHES = 21 * 45 * 80
"""Of 81 frames of 1280 x 720 pixels, the largest video that it was published for."""
SHIFTS = 6
"""Shifts, scales and gates of two halves."""


def read(config: Fields, family: str) -> Model:
    _check(config)
    heads, head_dim = config.whole("num_attention_heads"), config.whole("attention_head_dim")
    hidden, patch = heads * head_dim, _patch(config)
    channels = config.whole("in_channels")
    mixer = multi_head(config, head_dim=head_dim, bias=True, qk_norm=True, qk_norm_whole=True, causal=False)
    layers = uniform(
        layer_count(config, "num_layers"),
        mixer=mixer,
        cross=_cross(heads, head_dim),
        ffn=DenseFfn(inner=config.whole("ffn_dim"), gated=False, bias=True),
        # Only the norm before the text has numbers of its own.
        extras=(Modulation(name="modulation", width=hidden), Embedding(name="cross_norm", width=2 * hidden)),
    )
    out = config.whole("out_channels", channels) * patch
    return decoder(
        config,
        family,
        layers,
        hidden=hidden,
        vocab=0,
        max_context=TRAINED_PATCHES,
        norm_weight=False,
        centred_norms=True,
        has_head=False,
        tied_embeddings=True,
        stem=(
            ConvolutionLayer(name="patches", inputs=channels, outputs=hidden, kernel=patch, bias=True),
            Linear(name="time", inputs=config.whole("freq_dim", TIME_CHANNELS), outputs=hidden, bias=True, once=True),
            Linear(name="time_out", inputs=hidden, outputs=hidden, bias=True, once=True),
            Linear(name="shifts", inputs=hidden, outputs=SHIFTS * hidden, bias=True, once=True),
        ),
        tail=(
            Modulation(name="last_modulation", width=hidden, rows=2),
            Linear(name="latents", inputs=hidden, outputs=out, bias=True),
        ),
        towers=(_text(config, hidden),),
    )


def _check(config: Fields) -> None:
    only(config, "qk_norm", ("rms_norm_across_heads",))
    if not config.flag("cross_attn_norm", True):
        raise InputError(
            "a layer without a norm before its text is not supported", where=config.spot("cross_attn_norm")
        )
    for key in ("image_dim", "added_kv_proj_dim"):
        if config.has(key):
            raise InputError("a network that also attends to an image is not supported", where=config.spot(key))


def _patch(config: Fields) -> int:
    """Latent pixels of a patch: frames by rows by columns."""
    found = config.list("patch_size")
    if len(found) != 3 or not all(type(side) is int and side > 0 for side in found):
        raise InputError(f"{shown(found)} is not a patch of three sides", where=config.spot("patch_size"))
    return prod(found)


def _cross(heads: int, head_dim: int) -> CrossAttention:
    return CrossAttention(
        heads=heads, kv_heads=heads, head_dim=head_dim, source_width=heads * head_dim, q_bias=True, key_bias=True,
        value_bias=True, out_bias=True, qk_norm=True, qk_norm_whole=True,
    )  # fmt: skip


def _text(config: Fields, hidden: int) -> Tower:
    """What an encoder of text has made, brought to the width of the layers. The encoder is not a part of it."""
    return Tower(
        name="text",
        hidden=hidden,
        blocks=(),
        stem=(
            Linear(name="text", inputs=config.whole("text_dim"), outputs=hidden, bias=True),
            Linear(name="text_out", inputs=hidden, outputs=hidden, bias=True),
        ),
        final_norm=False,
        intake=VisionPreprocessor(positions=TEXT_TOKENS),
    )
