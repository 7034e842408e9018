"""Qwen2-VL and Qwen2.5-VL: Qwen2's decoder behind a vision tower that folds four patches into a token."""

from __future__ import annotations

from gnomon.load.families import qwen
from gnomon.load.families.base import MOST_MERGED, decoder, dtype, gather, layer_count, multi_head, numbers
from gnomon.load.fields import Fields
from gnomon.spec import (
    AttentionMixer,
    Block,
    ConvolutionLayer,
    DenseFfn,
    Linear,
    Model,
    Norm,
    Tower,
    VisionPreprocessor,
)

SECOND = {
    "depth": 32,
    "embed_dim": 1280,
    "num_heads": 16,
    "mlp_ratio": 4,
    "in_channels": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
"""Defaults of the published config class, some of which files leave out."""
SECOND_AND_A_HALF = {
    "depth": 32,
    "in_channels": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
}


def read(config: Fields, family: str) -> Model:
    text = config.inner("text_config") if config.has("text_config") else config
    vision = config.inner("vision_config")
    second = family == "qwen2_vl"
    tower = _second(vision.filled(SECOND)) if second else _with_windows(vision.filled(SECOND_AND_A_HALF))
    tied = text.flag("tie_word_embeddings", False) or config.flag("tie_word_embeddings", False)
    layers = qwen.layers(text, "qwen2")
    return decoder(text, family, layers, towers=(tower,), tied_embeddings=tied, dtype=dtype(config))


def _second(vision: Fields) -> Tower:
    hidden = vision.whole("embed_dim")
    ffn = DenseFfn(inner=vision.whole("mlp_ratio") * hidden, gated=False, bias=True)
    block = Block(mixer=_attention(vision, "embed_dim"), ffn=ffn, count=layer_count(vision, "depth"))
    return _tower(vision, hidden, (block,), vision.whole("hidden_size"), norm_bias=True)


def _with_windows(vision: Fields) -> Tower:
    """Windowed attention between patches, full attention in a few layers."""
    hidden, count = vision.whole("hidden_size"), layer_count(vision, "depth")
    ffn = DenseFfn(inner=vision.whole("intermediate_size"), bias=True)
    full = frozenset(numbers(vision, "fullatt_block_indexes"))
    side = max(1, vision.whole("window_size") // vision.whole("patch_size"))
    blocks = [
        Block(mixer=_attention(vision, "hidden_size", None if i in full else side**2), ffn=ffn, count=1)
        for i in range(count)
    ]
    return _tower(vision, hidden, tuple(blocks), vision.whole("out_hidden_size"), norm_bias=False)


def _attention(vision: Fields, width: str, window: int | None = None) -> AttentionMixer:
    chunked = window is not None
    return multi_head(vision, "num_heads", width, bias=True, causal=False, window=window, chunked=chunked)


def _tower(vision: Fields, hidden: int, blocks: tuple[Block, ...], out: int, norm_bias: bool) -> Tower:
    patch, merge = vision.whole("patch_size"), vision.whole("spatial_merge_size", most=MOST_MERGED)
    folded, kernel = hidden * merge**2, vision.whole("temporal_patch_size") * patch**2
    return Tower(
        name="vision",
        hidden=hidden,
        blocks=gather(blocks),
        stem=(ConvolutionLayer(name="patches", inputs=vision.whole("in_channels"), outputs=hidden, kernel=kernel),),
        tail=(
            Norm(name="norm", width=hidden, bias=norm_bias),
            Linear(name="fold", inputs=folded, outputs=folded, bias=True),
            Linear(name="to_text", inputs=folded, outputs=out, bias=True),
        ),
        norm_bias=norm_bias,
        final_norm=False,
        intake=VisionPreprocessor(patch=patch, merge=merge, any_size=True),
    )
