"""Llama and similar decoders: Mistral, Granite, Seed-OSS, Nemotron, StarCoder2, StableLM, SmolLM3 and EXAONE 4."""

from __future__ import annotations

from gnomon.load.families.base import (
    attention,
    decoder,
    dense,
    head_dim_of,
    layer_count,
    layer_kinds,
    rotary_dim,
    rotary_layers,
    uniform,
    window_of,
    windows,
)
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model

MISTRAL = ("mistral", "ministral3")
"""All layers have the file's sliding window, and only queries, keys and values may have a bias."""


def read(config: Fields, family: str) -> Model:
    """Llama, Mistral, Granite and Seed-OSS: RMS norms, rotary positions, gated feed-forwards."""
    mistral, bias = family in MISTRAL, config.flag("attention_bias", family == "seed_oss")
    out_bias = config.flag("attention_out_bias", False) if family == "seed_oss" else bias
    window = window_of(config) if mistral else None
    mixer = attention(config, qkv_bias=bias, out_bias=out_bias and not mistral, window=window)
    ffn = dense(config, bias=not mistral and config.flag("mlp_bias", False))
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn)
    # Granite scales its embedding, its residuals and its logits.
    return decoder(config, family, blocks, scaled_embedding=family == "granite")


def nemotron(config: Fields, family: str) -> Model:
    """Nemotron 3 and 4, Minitron, and Arcee: feed-forwards without a gate."""
    rotary = rotary_dim(config, head_dim_of(config), 0.5 if family == "nemotron" else 1.0)
    mixer = attention(config, bias=config.flag("attention_bias", False), rotary_dim=rotary)
    ffn = dense(config, gated=False, bias=config.flag("mlp_bias", False))
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn)
    return decoder(config, family, blocks, norm_bias=family == "nemotron")


def starcoder2(config: Fields, family: str) -> Model:
    """StarCoder2: GPT-2's biases and layer norms, Mistral's grouped heads and window."""
    bias, tied = config.flag("use_bias", True), config.flag("tie_word_embeddings", True)
    mixer, ffn = attention(config, bias=bias, window=window_of(config)), dense(config, gated=False, bias=bias)
    blocks = uniform(layer_count(config), mixer=mixer, ffn=ffn)
    return decoder(config, family, blocks, norm_bias=True, tied_embeddings=tied)


def stablelm(config: Fields, family: str) -> Model:
    """StableLM: layer norms, a quarter of each head rotary, perhaps parallel attention and feed-forward."""
    normed, parallel = config.flag("qk_layernorm", False), config.flag("use_parallel_residual", False)
    mixer = attention(
        config,
        qkv_bias=config.flag("use_qkv_bias", False),
        qk_norm=normed,
        qk_norm_whole=normed,
        rotary_dim=rotary_dim(config, head_dim_of(config), 0.25),
    )
    blocks = uniform(layer_count(config), mixer=mixer, ffn=dense(config), parallel=parallel, norms=1 if parallel else 2)
    return decoder(config, family, blocks, norm_bias=True)


def smollm3(config: Fields, family: str) -> Model:
    """SmolLM3: Llama's layers, a quarter of which have no positions."""
    bias, count = config.flag("attention_bias", False), layer_count(config)
    ffn = dense(config, bias=config.flag("mlp_bias", False))
    window = window_of(config) if config.flag("use_sliding_window", False) else None
    kinds = layer_kinds(config, count, ("sliding_attention", "full_attention"))
    blocks = []
    for layer, rotary in enumerate(rotary_layers(config, count)):
        near = kinds[layer] == "sliding_attention" if kinds else not rotary
        mixer = attention(config, bias=bias, rotary_dim=None if rotary else 0, window=window if near else None)
        blocks.append(Block(mixer=mixer, ffn=ffn, count=1))
    return decoder(config, family, blocks, tied_embeddings=config.flag("tie_word_embeddings", True))


def exaone4(config: Fields, family: str) -> Model:
    """EXAONE 4: post-norms, sliding windows in three layers of four, and no positions in the fourth."""
    count, ffn, hybrid = layer_count(config), dense(config), config.has("sliding_window")
    blocks = []
    for window in windows(config, count, _exaone_period(config)) if hybrid else [None] * count:
        rotary = window is not None or not hybrid
        mixer = attention(config, qk_norm=True, window=window, rotary_dim=None if rotary else 0)
        blocks.append(Block(mixer=mixer, ffn=ffn, count=1, norm_after=True))
    return decoder(config, family, blocks)


def _exaone_period(config: Fields) -> int:
    """Layers between two with full attention; the first files wrote a pattern such as LLLG."""
    pattern = config.raw("sliding_window_pattern", 4)
    return len(pattern) if isinstance(pattern, str) and pattern else config.whole("sliding_window_pattern", 4)
