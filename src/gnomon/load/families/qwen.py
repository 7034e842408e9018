"""Qwen 2, 2.5 and 3, dense and with experts."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.load.families.base import (
    attention,
    decoder,
    dense,
    experts,
    head_dim_of,
    layer_count,
    layer_kinds,
    numbers,
)
from gnomon.load.fields import Fields
from gnomon.spec import Block, Model, MoeFfn

QWEN3_HEAD_DIM = 128
"""The default of the published config class."""
SLIDING = ("sliding_attention", "full_attention")


def read(config: Fields, family: str) -> Model:
    return decoder(config, family, layers(config, family))


def layers(config: Fields, family: str) -> Iterator[Block]:
    third = family in ("qwen3", "qwen3_moe")
    bias = config.flag("attention_bias", False) if third else family == "qwen2" or config.flag("qkv_bias", True)
    head_dim = head_dim_of(config, QWEN3_HEAD_DIM if family == "qwen3" else None)
    count = layer_count(config)
    mixture = _experts(config, family)
    sparse = sparse_layers(config, count) if mixture else [False] * count
    plain = dense(config) if mixture is None or not all(sparse) else None
    for layer, window in enumerate(windows(config, family, count)):
        out_bias = third and bias
        mixer = attention(config, head_dim=head_dim, qkv_bias=bias, out_bias=out_bias, qk_norm=third, window=window)
        yield Block(mixer=mixer, ffn=mixture if sparse[layer] else plain, count=1)


def windows(config: Fields, family: str, count: int) -> list[int | None]:
    """Qwen 2 and 3 keep full attention in their first layers; the third's mixture of experts slides in all."""
    if not config.has("sliding_window") or not config.flag("use_sliding_window", False):
        return [None] * count
    window = config.whole("sliding_window")
    kinds = layer_kinds(config, count, SLIDING)
    if kinds:
        return [window if kind == SLIDING[0] else None for kind in kinds]
    first = 0 if family == "qwen3_moe" else config.whole("max_window_layers", 0, least=0)
    return [window if layer >= first else None for layer in range(count)]


def _experts(config: Fields, family: str) -> MoeFfn | None:
    if family == "qwen3_moe":
        count = "num_local_experts" if config.has("num_local_experts") else "num_experts"
        return experts(config, count, "moe_intermediate_size")
    if family != "qwen2_moe":
        return None
    return gated_shared_experts(config)


def gated_shared_experts(config: Fields) -> MoeFfn:
    """Routed experts, and a shared one behind a gate."""
    shared = config.whole("shared_expert_intermediate_size")
    return experts(config, "num_experts", "moe_intermediate_size", shared_inner=shared, shared_gate=True)


def sparse_layers(config: Fields, count: int) -> list[bool]:
    """Which layers have experts."""
    dense_ones, step = frozenset(numbers(config, "mlp_only_layers")), config.whole("decoder_sparse_step", 1)
    return [layer not in dense_ones and (layer + 1) % step == 0 for layer in range(count)]
