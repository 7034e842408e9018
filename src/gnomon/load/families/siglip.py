"""SigLIP, the vision tower of Gemma 3: learned positions, plain blocks, and a projection to the text's width."""

from __future__ import annotations

from math import isqrt

from gnomon.load.families.base import dense, layer_count, multi_head, uniform
from gnomon.load.fields import Fields
from gnomon.spec import ConvolutionLayer, Embedding, Linear, Norm, Tower, VisionPreprocessor


def vision(config: Fields, text_hidden: int, tokens: int) -> Tower:
    """The tower of Gemma 3; the patches of an image are averaged to `tokens`."""
    hidden, patch, side = (config.whole(key) for key in ("hidden_size", "patch_size", "image_size"))
    mixer = multi_head(config, bias=True, causal=False, rotary_dim=0)
    ffn = dense(config, gated=False, bias=True)
    places = (side // patch) ** 2
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=uniform(layer_count(config), mixer=mixer, ffn=ffn),
        stem=(
            ConvolutionLayer(
                name="patches", inputs=config.whole("num_channels", 3), outputs=hidden, kernel=patch**2, bias=True
            ),
            Embedding(name="positions", rows=places, width=hidden),
        ),
        tail=(Norm(name="norm", width=hidden), Linear(name="to_text", inputs=hidden, outputs=text_hidden)),
        norm_bias=True,
        intake=VisionPreprocessor(side=side, patch=patch, merge=max(1, isqrt(places // tokens))),
    )
