"""DiT as diffusers writes it: patches of an image, and layers whose norms are modulated by the time and the class."""

from __future__ import annotations

from gnomon.errors import InputError
from gnomon.load.families.base import decoder, layer_count, multi_head, only, refuse, uniform
from gnomon.load.fields import Fields
from gnomon.spec import ConvolutionLayer, DenseFfn, Embedding, Linear, Model, Part

TIME_CHANNELS = 256
"""Sines and cosines of the time step, before they are widened."""

MOST_SIDE = 2**15
"""The largest side of a sample: its patches are as many as a sequence may have."""


def read(config: Fields, family: str) -> Model:
    only(config, "norm_type", ("ada_norm_zero",))
    only(config, "activation_fn", ("gelu-approximate", "gelu"))
    refuse(config, "norm_elementwise_affine", "a norm with weights of its own next to its modulation")
    heads, head_dim = config.whole("num_attention_heads"), config.whole("attention_head_dim")
    hidden, channels, patch = heads * head_dim, config.whole("in_channels"), config.whole("patch_size")
    out, side = config.whole("out_channels", channels), config.whole("sample_size", most=MOST_SIDE) // patch
    if side < 1:
        raise InputError(f"{patch} is more than the whole sample", where=config.spot("patch_size"))
    bias = config.flag("attention_bias", True)
    mixer = multi_head(config, head_dim=head_dim, qkv_bias=bias, out_bias=True, rotary_dim=0, causal=False)
    ffn = DenseFfn(inner=4 * hidden, gated=False, bias=True)
    layers = uniform(layer_count(config, "num_layers"), mixer=mixer, ffn=ffn, extras=_modulation(config, hidden))
    return decoder(
        config,
        family,
        layers,
        hidden=hidden,
        vocab=0,
        max_context=side**2,
        norm_weight=False,
        centred_norms=True,
        has_head=False,
        tied_embeddings=True,
        stem=(ConvolutionLayer(name="patches", inputs=channels, outputs=hidden, kernel=patch**2, bias=True),),
        tail=(
            Linear(name="last_modulation", inputs=hidden, outputs=2 * hidden, bias=True, once=True),
            Linear(name="pixels", inputs=hidden, outputs=out * patch**2, bias=True),
        ),
    )


def _modulation(config: Fields, hidden: int) -> tuple[Part, ...]:
    """A layer's modulation: the time and the class as vectors, and six shifts, scales and gates made from their sum."""
    classes = config.whole("num_embeds_ada_norm") + 1  # one stands for no class
    return (
        Linear(name="time", inputs=TIME_CHANNELS, outputs=hidden, bias=True, once=True),
        Linear(name="time_out", inputs=hidden, outputs=hidden, bias=True, once=True),
        Embedding(name="classes", rows=classes, width=hidden),
        Linear(name="modulation", inputs=hidden, outputs=6 * hidden, bias=True, once=True),
    )
