"""Qwen3-VL and Qwen3.5: the decoders of Qwen3 and Qwen3-Next behind one vision tower."""

from __future__ import annotations

from gnomon.load.families import qwen, qwen3_next
from gnomon.load.families.base import (
    MOST_MERGED,
    decoder,
    dense,
    drafts,
    dtype,
    layer_count,
    multi_head,
    numbers,
    uniform,
)
from gnomon.load.fields import Fields
from gnomon.spec import Block, ConvolutionLayer, Embedding, Linear, Model, Norm, Part, Tower, VisionPreprocessor


def read(config: Fields, family: str) -> Model:
    text = config.inner("text_config") if config.has("text_config") else config
    towers = (_vision(config.inner("vision_config")),) if config.has("vision_config") else ()
    tied = config.flag("tie_word_embeddings", False)
    holder = text if text.has("dtype") or text.has("torch_dtype") else config
    blocks = _layers(text, family)
    mtp = drafts(text, blocks[-1], "mtp_num_hidden_layers")  # with full attention, as the last layer
    return decoder(text, family, blocks, towers=towers, tied_embeddings=tied, dtype=dtype(holder), mtp=mtp)


def _layers(text: Fields, family: str) -> list[Block]:
    if family.startswith("qwen3_vl"):
        return list(qwen.layers(text, family.replace("qwen3_vl", "qwen3")))
    return list(qwen3_next.layers(text, sparse=family == "qwen3_5_moe"))


def _vision(vision: Fields) -> Tower:
    hidden, mixer = vision.whole("hidden_size"), multi_head(vision, "num_heads", bias=True, causal=False)
    ffn = dense(vision, gated=False, bias=True)
    patch, merge = vision.whole("patch_size"), vision.whole("spatial_merge_size", most=MOST_MERGED)
    kernel = vision.whole("temporal_patch_size") * patch**2
    tails = _merger(vision, hidden, merge, "to_text", before=True)
    for layer in numbers(vision, "deepstack_visual_indexes"):  # these lead into the decoder's first layers
        tails += _merger(vision, hidden, merge, f"from_{layer}", before=False)
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=uniform(layer_count(vision, "depth"), mixer=mixer, ffn=ffn),
        stem=(
            ConvolutionLayer(
                name="patches", inputs=vision.whole("in_channels", 3), outputs=hidden, kernel=kernel, bias=True
            ),
            Embedding(name="positions", rows=vision.whole("num_position_embeddings"), width=hidden),
        ),
        tail=tails,
        norm_bias=True,
        final_norm=False,
        intake=VisionPreprocessor(patch=patch, merge=merge, any_size=True),
    )


def _merger(vision: Fields, hidden: int, merge: int, name: str, before: bool) -> tuple[Part, ...]:
    """Neighbouring patches joined to one token; normed before they are, or after."""
    folded = hidden * merge**2
    return (
        Norm(name=f"{name}_norm", width=hidden if before else folded, bias=True),
        Linear(name=f"{name}_fold", inputs=folded, outputs=folded, bias=True),
        Linear(name=name, inputs=folded, outputs=vision.whole("out_hidden_size"), bias=True),
    )
