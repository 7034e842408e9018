"""FLOPs of mixers counted token by token, and of matrices from the list of a model's tensors."""

from __future__ import annotations

from gnomon.spec import (
    AttentionMixer,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Linear,
    Mamba,
    Mamba2,
    Model,
    MoeFfn,
)
from gnomon.spec.model import Mixer
from gnomon.spec.parts import VECTOR

NO_PRODUCT = ("conv", "shared_score")
"""Matrices of a few columns or rows, which stream with what stands before them."""


def active_matrices(model: Model) -> int:
    """Numbers in the matrices that a token is multiplied with, without the head."""
    count = sum(part.inputs * part.outputs for part in model.stem if isinstance(part, Linear))
    for block in model.blocks:
        for tensor in block.tensors(model.hidden):
            if tensor.role == VECTOR or tensor.columns == 1 or tensor.role in NO_PRODUCT:
                continue
            visited = tensor.copies
            if tensor.role.startswith("expert_") and isinstance(block.ffn, MoeFfn):
                visited = block.ffn.topk
            count += block.count * visited * tensor.rows * tensor.columns
    return count


def row_matrices(model: Model) -> int:
    """Numbers in the matrices that a row of logits is multiplied with."""
    before = sum(part.inputs * part.outputs for part in model.tail if isinstance(part, Linear))
    return before + model.vocab * (model.embedding_width or model.hidden)


def mixed_flops(mixer: Mixer | None, first: int, new: int, *, decode: bool) -> float:
    """FLOPs beside the matrices of one sequence: its `new` tokens, of which the first stands at `first` + 1."""
    return sum(_token(mixer, position, position - first, new, decode) for position in range(first + 1, first + new + 1))


def _token(mixer: Mixer | None, position: int, place: int, new: int, decode: bool) -> float:
    match mixer:
        case AttentionMixer():
            window = mixer.window or position
            seen = (position - 1) % window + 1 if mixer.chunked and mixer.window else min(position, window)
            return 4.0 * seen * mixer.heads * mixer.head_dim
        case LatentAttention():
            return _latent(mixer, position, decode)
        case Mamba(inner=inner, state=state):
            return 6.0 * inner * state
        case Mamba2(heads=heads, head_dim=values, state=keys, groups=groups):
            in_chunk = (place - 1) % mixer.chunk + 1
            whole = heads * values * keys
            return 5.0 * whole if decode else 4.0 * whole + 2.0 * in_chunk * (groups * keys + heads * values)
        case LightningAttention(heads=heads, head_dim=width):
            in_chunk = (place - 1) % mixer.block + 1
            whole = heads * width * width
            return 5.0 * whole if decode else 4.0 * whole + 4.0 * in_chunk * heads * width
        case GatedDelta(value_heads=heads, key_dim=keys, value_dim=values):
            in_chunk = (place - 1) % 64 + 1
            whole = heads * keys * values
            inverse = heads * 64**3 / 3 if in_chunk == 1 else 0.0
            inside = 2.0 * in_chunk * heads * (3 * keys + 2 * values)
            return 7.0 * whole if decode else 6.0 * whole + inside + inverse
    return 0.0


def _latent(mixer: LatentAttention, position: int, decode: bool) -> float:
    folded = 2.0 * mixer.heads * (2 * mixer.kv_rank + mixer.rope_dim)
    if mixer.indexer is not None:
        scored = 2.0 * position * mixer.indexer.heads * mixer.indexer.head_dim
        return scored + folded * min(position, mixer.indexer.topk)
    unfolded = 2.0 * mixer.heads * (mixer.nope_dim + mixer.rope_dim + mixer.value_dim)
    return position * (folded if decode else unfolded)
