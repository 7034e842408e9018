"""Llama 4: chunks of attention between whole layers without positions, one expert a token and a shared one."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import (
    attention,
    decoder,
    dense,
    dtype,
    experts,
    head_dim_of,
    layer_count,
    layer_kinds,
    numbers,
    split,
    turned_layers,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import AttentionMixer, Block, DenseFfn, Embedding, Linear, Model, Norm, Tower, VisionPreprocessor

DEFAULT_CHUNK = 8192
"""The default of the published config class, which files leave out."""

MOST_TILES = 16
"""Of one picture, before one of the whole is added, as its preprocessor has it."""


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
    plain, sparse, turned = dense(text, "intermediate_size_mlp"), _sparse(text, count), turned_layers(text, count)
    kinds = layer_kinds(text, count, ("chunked_attention", "full_attention"))
    normed, bias, head_dim = text.flag("use_qk_norm", True), text.flag("attention_bias", False), head_dim_of(text)
    for layer in range(count):
        local = kinds[layer] == "chunked_attention" if kinds else turned[layer]
        norms = normed and turned[layer]
        mixer = attention(
            text,
            head_dim=head_dim,
            qkv_bias=bias,
            out_bias=bias,
            qk_norm=norms,
            qk_norm_weight=not norms,
            window=chunk if local else None,
            chunked=local,
            rotary_dim=None if turned[layer] else 0,
        )
        yield Block(mixer=mixer, ffn=mixture if layer in sparse else plain, count=1)


def _sparse(text: Fields, count: int) -> frozenset[int]:
    if text.has("moe_layers"):
        return frozenset(numbers(text, "moe_layers"))
    step = text.whole("interleave_moe_layer_step", 1)
    return frozenset(range(step - 1, count, step))


def _vision(vision: Fields, text: Fields) -> Tower:
    hidden, heads, image, patch = (
        vision.whole(key) for key in ("hidden_size", "num_attention_heads", "image_size", "patch_size")
    )
    mixer = AttentionMixer(
        heads=heads,
        kv_heads=heads,
        head_dim=split(vision, "hidden_size", heads),
        qkv_bias=True,
        out_bias=True,
        causal=False,
    )
    inner, middle = vision.whole("intermediate_size"), vision.whole("projector_input_dim")
    out, places = vision.whole("projector_output_dim"), (image // patch) ** 2 + 1
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=uniform(layer_count(vision), mixer=mixer, ffn=DenseFfn(inner=inner, gated=False, bias=True)),
        stem=(
            Linear(name="patches", inputs=vision.whole("num_channels", 3) * patch**2, outputs=hidden),
            Embedding(name="class", width=hidden),
            Embedding(name="positions", rows=places, width=hidden),
            Norm(name="first_norm", width=hidden, bias=True),
        ),
        tail=(
            Linear(name="fold", inputs=inner, outputs=middle),
            Linear(name="widen", inputs=out, outputs=out),
            Linear(name="to_text", inputs=vision.whole("vision_output_dim"), outputs=text.whole("hidden_size")),
        ),
        norm_bias=True,
        intake=VisionPreprocessor(side=image, patch=patch, merge=_merge(vision), tiles=MOST_TILES, beside=1),
    )


def _merge(vision: Fields) -> int:
    """Patches a side that one token takes in: a pixel shuffle by one half joins two."""
    ratio = vision.number("pixel_shuffle_ratio", 0.5)
    return max(1, round(1 / ratio))
