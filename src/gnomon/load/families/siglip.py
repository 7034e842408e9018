"""SigLIP, the vision tower of Gemma 3: patches, learned positions, plain blocks, and a matrix to the text's width."""

from __future__ import annotations

from math import isqrt

from gnomon.load.families.base import layer_count, split, uniform
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, ConvolutionLayer, DenseFfn, Embedding, Linear, Norm, Tower, VisionPreprocessor


def vision(config: Fields, text_hidden: int, tokens: int) -> Tower:
    """`tokens` is what the patches of a picture are averaged to."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    patch = config.whole("patch_size")
    mixer = AttentionMixer(
        heads=heads,
        kv_heads=heads,
        head_dim=split(config, "hidden_size", heads),
        qkv_bias=True,
        out_bias=True,
        causal=False,
        rotary_dim=0,
    )
    ffn = DenseFfn(inner=config.whole("intermediate_size"), gated=False, bias=True)
    side = config.whole("image_size")
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
