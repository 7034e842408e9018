"""LLaVA 1.5: Llama's or Mistral's decoder behind CLIP's vision tower and a two-layer projector."""

from __future__ import annotations

from dataclasses import replace

from gnomon.load.families import llama
from gnomon.load.families.base import dense, dtype, layer_count, multi_head, only, uniform
from gnomon.load.fields import Fields
from gnomon.spec import ConvolutionLayer, Embedding, Linear, Model, Norm, Tower, VisionPreprocessor

LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
"""Defaults of Llama's published config class, which files leave out."""


def read(config: Fields, family: str) -> Model:
    text, vision = config.inner("text_config").filled(LLAMA), config.inner("vision_config")
    only(text, "model_type", ("llama", "mistral"))
    only(vision, "model_type", ("clip_vision_model",))
    only(config, "vision_feature_select_strategy", ("default",))
    found = llama.read(text, text.text("model_type", "llama"))
    tower = _vision(config, vision, found.hidden)
    tied = config.flag("tie_word_embeddings", text.flag("tie_word_embeddings", False))
    return replace(found, name=family, family=family, towers=(tower,), tied_embeddings=tied, dtype=dtype(config))


def _vision(config: Fields, vision: Fields, text_hidden: int) -> Tower:
    hidden, patch, side = (vision.whole(key) for key in ("hidden_size", "patch_size", "image_size"))
    mixer = multi_head(vision, bias=True, causal=False, rotary_dim=0)
    ffn = dense(vision, gated=False, bias=True)
    bias = config.flag("multimodal_projector_bias", True)
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=uniform(layer_count(vision), mixer=mixer, ffn=ffn),
        stem=(
            ConvolutionLayer(name="patches", inputs=vision.whole("num_channels", 3), outputs=hidden, kernel=patch**2),
            Embedding(name="class", width=hidden),
            Embedding(name="positions", rows=(side // patch) ** 2 + 1, width=hidden),
            Norm(name="first_norm", width=hidden, bias=True),
        ),
        tail=(
            Linear(name="widen", inputs=hidden, outputs=text_hidden, bias=bias),
            Linear(name="to_text", inputs=text_hidden, outputs=text_hidden, bias=bias),
        ),
        norm_bias=True,
        intake=VisionPreprocessor(side=side, patch=patch, beside=1),
    )
