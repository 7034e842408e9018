"""Mistral Small 3.1 and later: Mistral's decoder behind Pixtral's vision tower."""

from __future__ import annotations

from dataclasses import replace

from gnomon.load.families import llama
from gnomon.load.families.base import MOST_MERGED, dense, dtype, layer_count, multi_head, only, uniform
from gnomon.load.fields import Fields
from gnomon.spec import ConvolutionLayer, Linear, Model, Norm, Tower, VisionPreprocessor


def read(config: Fields, family: str) -> Model:
    text = config.inner("text_config")
    only(text, "model_type", ("mistral", "ministral3"))
    found = llama.read(text, text.text("model_type", "mistral"))
    tower = _vision(config, config.inner("vision_config"), found.hidden)
    tied = config.flag("tie_word_embeddings", text.flag("tie_word_embeddings", False))
    return replace(found, name=family, family=family, towers=(tower,), tied_embeddings=tied, dtype=dtype(config))


def _vision(config: Fields, vision: Fields, text_hidden: int) -> Tower:
    hidden, mixer, ffn = vision.whole("hidden_size"), multi_head(vision, causal=False), dense(vision)
    bias = config.flag("multimodal_projector_bias", False)
    merge = config.whole("spatial_merge_size", 2, most=MOST_MERGED)
    patch = vision.whole("patch_size")
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=uniform(layer_count(vision), mixer=mixer, ffn=ffn),
        stem=(
            ConvolutionLayer(name="patches", inputs=vision.whole("num_channels", 3), outputs=hidden, kernel=patch**2),
            Norm(name="first_norm", width=hidden),
        ),
        tail=(
            Norm(name="norm", width=hidden),
            Linear(name="merge", inputs=hidden * merge**2, outputs=hidden),
            Linear(name="to_text", inputs=hidden, outputs=text_hidden, bias=bias),
            Linear(name="text", inputs=text_hidden, outputs=text_hidden, bias=bias),
        ),
        final_norm=False,
        intake=VisionPreprocessor(
            side=vision.whole("image_size", 0, least=0), patch=patch, merge=merge, any_size=True, row_ends=True
        ),
    )
