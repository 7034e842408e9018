"""Llama 4: chunked and full attention layers, one routed expert per token and a shared one."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import (
    attention,
    decoder,
    dense,
    dtype,
    experts,
    layer_count,
    layer_kinds,
    multi_head,
    numbers,
    rotary_layers,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import Block, Embedding, Linear, Model, Norm, Tower, VisionPreprocessor

DEFAULT_CHUNK = 8192
"""The default of the published config class, which files leave out."""

MOST_TILES = 16
"""Tiles of one image in its preprocessor, without the thumbnail."""


def read(config: Fields, family: str) -> Model:
    text = config.inner("text_config") if config.has("text_config") else config
    towers = (_vision(config.inner("vision_config"), text),) if config.has("vision_config") else ()
    return decoder(
        text,
        family,
        _layers(text),
        towers=towers,
        dtype=dtype(config if config.has("torch_dtype") or config.has("dtype") else text),
    )


def _layers(text: Fields) -> Iterator[Block]:
    count, chunk = layer_count(text), text.whole("attention_chunk_size", DEFAULT_CHUNK)
    shared = text.whole("intermediate_size")
    mixture = experts(text, "num_local_experts", "intermediate_size", shared_inner=shared, router="sigmoid")
    plain, sparse, rotary = dense(text, "intermediate_size_mlp"), _sparse(text, count), rotary_layers(text, count)
    kinds = layer_kinds(text, count, ("chunked_attention", "full_attention"))
    normed, bias = text.flag("use_qk_norm", True), text.flag("attention_bias", False)
    for layer in range(count):
        local = kinds[layer] == "chunked_attention" if kinds else rotary[layer]
        norms = normed and rotary[layer]
        mixer = attention(
            text,
            bias=bias,
            qk_norm=norms,
            qk_norm_weight=not norms,
            window=chunk if local else None,
            chunked=local,
            rotary_dim=None if rotary[layer] else 0,
        )
        yield Block(mixer=mixer, ffn=mixture if layer in sparse else plain, count=1)


def _sparse(text: Fields, count: int) -> frozenset[int]:
    if text.has("moe_layers"):
        return frozenset(numbers(text, "moe_layers"))
    step = text.whole("interleave_moe_layer_step", 1)
    return frozenset(range(step - 1, count, step))


def _vision(vision: Fields, text: Fields) -> Tower:
    hidden, image, patch = (vision.whole(key) for key in ("hidden_size", "image_size", "patch_size"))
    mixer, ffn = multi_head(vision, bias=True, causal=False), dense(vision, gated=False, bias=True)
    out, places = vision.whole("projector_output_dim"), (image // patch) ** 2 + 1
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=uniform(layer_count(vision), mixer=mixer, ffn=ffn),
        stem=(
            Linear(name="patches", inputs=vision.whole("num_channels", 3) * patch**2, outputs=hidden),
            Embedding(name="class", width=hidden),
            Embedding(name="positions", rows=places, width=hidden),
            Norm(name="first_norm", width=hidden, bias=True),
        ),
        tail=(
            Linear(name="fold", inputs=ffn.inner, outputs=vision.whole("projector_input_dim")),
            Linear(name="widen", inputs=out, outputs=out),
            Linear(name="to_text", inputs=vision.whole("vision_output_dim"), outputs=text.whole("hidden_size")),
        ),
        norm_bias=True,
        intake=VisionPreprocessor(side=image, patch=patch, merge=_merge(vision), tiles=MOST_TILES, beside=1),
    )


def _merge(vision: Fields) -> int:
    """Patches per side that become one token: a pixel shuffle by one half joins two."""
    return max(1, round(1 / vision.number("pixel_shuffle_ratio", 0.5)))
