"""What the matrices of a layer are called in a checkpoint, by their role here."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.spec import (
    AttentionMixer,
    Block,
    CrossAttention,
    DenseFfn,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    MoeFfn,
    ShortConvolution,
)

_ATTENTION = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "o_proj"}
_LATENT = {
    "q": "q_proj",
    "q_down": "q_a_proj",
    "q_up": "q_b_proj",
    "kv_down": "kv_a_proj_with_mqa",
    "kv_up": "kv_b_proj",
    "out": "o_proj",
    "index_q": "indexer.wq_b",
    "index_k": "indexer.wk",
    "index_weights": "indexer.weights_proj",
}
_CROSS = {"cross_q": "q_proj", "cross_k": "k_proj", "cross_v": "v_proj", "cross_out": "o_proj"}
_MAMBA = {"in": "in_proj", "step": "x_proj", "step_up": "dt_proj", "out": "out_proj"}
_DELTA = {"in": "in_proj_qkvz", "decay": "in_proj_ba", "out": "out_proj"}
_LIGHTNING = {"in": "qkv_proj", "out_gate": "output_gate", "out": "out_proj"}
_DENSE = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_FOLDS = {"fold": "fc1_latent_proj", "unfold": "fc2_latent_proj"}

_MIXERS: dict[type, tuple[tuple[str, ...], dict[str, str]]] = {
    AttentionMixer: (("self_attn", "attention", "attn", "mixer"), _ATTENTION),
    LatentAttention: (("self_attn",), _LATENT),
    CrossAttention: (("cross_attn", "encoder_attn"), _CROSS),
    Mamba: (("mamba", "mixer"), _MAMBA),
    Mamba2: (("mamba", "mixer"), _MAMBA),
    GatedDelta: (("linear_attn",), _DELTA),
    LightningAttention: (("self_attn",), _LIGHTNING),
    ShortConvolution: (("conv",), {"in": "in_proj", "out": "out_proj"}),
}
_FFNS = ("mlp", "feed_forward", "block_sparse_moe", "mixer")
PREFIXES = ("model.layers", "model.language_model.layers", "language_model.model.layers")
TOWERS = ("visual", "vision_tower", "vision_model", "model.visual", "model.vision_tower", "model.vision_model")
HEADS = ("lm_head", "model.lm_head", "language_model.lm_head")


def modules(block: Block) -> dict[str, tuple[str, ...]]:
    """Names a matrix may have within its layer, by role."""
    found: dict[str, tuple[str, ...]] = {}
    for half in (block.mixer, block.cross):
        if half is not None:
            homes, roles = _MIXERS[type(half)]
            found |= {role: tuple(f"{home}.{name}" for home in homes) for role, name in roles.items()}
    if isinstance(block.ffn, DenseFfn):
        found |= {role: tuple(f"{home}.{name}" for home in _FFNS) for role, name in _DENSE.items()}
    if isinstance(block.ffn, MoeFfn):
        for role, name in _DENSE.items():
            found[f"expert_{role}"] = tuple(f"{home}.experts.0.{name}" for home in _FFNS)
            found[f"shared_{role}"] = tuple(
                f"{home}.{shared}.{name}" for home in _FFNS for shared in ("shared_experts", "shared_expert")
            )
        found |= {role: tuple(f"{home}.{name}" for home in _FFNS) for role, name in _FOLDS.items()}
    return found


def full(layer: int, names: tuple[str, ...]) -> Iterator[str]:
    """The names a matrix may have in the whole model."""
    for prefix in PREFIXES:
        for name in names:
            yield f"{prefix}.{layer}.{name}"
