"""Llama 3.2 Vision: Llama's layers, and some with cross-attention to the image."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import (
    attention,
    decoder,
    dense,
    dtype,
    head_dim_of,
    layer_count,
    multi_head,
    numbers,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import (
    Block,
    ConvolutionLayer,
    CrossAttention,
    Embedding,
    Linear,
    Model,
    Norm,
    Tower,
    VisionPreprocessor,
)

CROSS_LAYERS = [3, 8, 13, 18, 23, 28, 33, 38]
MARKERS = 8
"""Rows of the table of tokens beyond the vocabulary, for markers that are never predicted."""
ALIGN = 8
"""The tower pads the positions of a tile to a multiple of this."""
RATIOS = 8
"""Aspect ratios of an image's tiles, where the file does not list them."""
GATES = (Embedding(name="attention_gate", width=1), Embedding(name="ffn_gate", width=1))
"""Scalars that scale a layer's two branches."""


def read(config: Fields, family: str) -> Model:
    text, vision = config.inner("text_config"), config.inner("vision_config")
    hidden = text.whole("hidden_size")
    return decoder(
        text,
        family,
        _layers(text, hidden),
        towers=(_vision(vision, hidden),),
        stem=(Embedding(name="markers", rows=MARKERS, width=hidden),),
        tied_embeddings=text.flag("tie_word_embeddings", False),
        dtype=dtype(config if config.has("torch_dtype") or config.has("dtype") else text),
    )


def _layers(text: Fields, hidden: int) -> Iterator[Block]:
    softmax, ffn = attention(text), dense(text)
    cross = CrossAttention(
        heads=softmax.heads, kv_heads=softmax.kv_heads, head_dim=head_dim_of(text), source_width=hidden, qk_norm=True
    )
    chosen = frozenset(numbers(text, "cross_attention_layers") or CROSS_LAYERS)
    for layer in range(layer_count(text)):
        there = layer in chosen
        yield Block(mixer=cross if there else softmax, ffn=ffn, count=1, extras=GATES if there else ())


def _vision(vision: Fields, text_hidden: int) -> Tower:
    hidden, patch, tiles = (vision.whole(key) for key in ("hidden_size", "patch_size", "max_num_tiles"))
    mixer = multi_head(vision, "attention_heads", causal=False, rotary_dim=0)
    ffn = dense(vision, gated=False, bias=True)
    places = (vision.whole("image_size") // patch) ** 2 + 1
    shapes = len(vision.list("supported_aspect_ratios")) or RATIOS
    local = uniform(layer_count(vision), mixer=mixer, ffn=ffn)
    full = uniform(layer_count(vision, "num_global_layers"), mixer=mixer, ffn=ffn, extras=GATES)
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=local + full,
        stem=(
            ConvolutionLayer(name="patches", inputs=vision.whole("num_channels", 3), outputs=hidden, kernel=patch**2),
            Embedding(name="class", width=hidden),
            Embedding(name="positions", rows=places, width=hidden),
            Embedding(name="tile_positions", rows=shapes + 1, width=tiles * places * hidden),
            Embedding(name="position_gate", width=1),
            Embedding(name="before", rows=shapes + 1, width=tiles * hidden),
            Embedding(name="before_gate", width=1),
            Embedding(name="after", rows=shapes + 1, width=tiles * hidden),
            Embedding(name="after_gate", width=1),
            Norm(name="first_norm", width=hidden, bias=True),
        ),
        tail=(Linear(name="to_text", inputs=vision.whole("vision_output_dim"), outputs=text_hidden, bias=True),),
        norm_bias=True,
        intake=VisionPreprocessor(
            side=vision.whole("image_size"),
            patch=patch,
            tiles=tiles,
            always_tiles=True,
            beside=1,
            keeps_beside=True,
            align=ALIGN,
        ),
    )
