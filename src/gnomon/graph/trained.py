"""What of a model has gradients: the one place where models are refused for training because of their shape."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
from gnomon.spec import (
    AttentionMixer,
    Block,
    Embedding,
    GatedDelta,
    LatentAttention,
    LightningAttention,
    Linear,
    Mamba,
    Mamba2,
    Model,
    Norm,
    ShortConvolution,
)

HINT = "Dense networks, mixtures of experts, hybrids and encoders of text are priced in training."
RECURRENT = (Mamba, Mamba2, GatedDelta, LightningAttention, ShortConvolution)
"""Mixers that keep a state, with gradients."""


def check_trained(model: Model, plain: str = "") -> None:
    """Raise InputError where the model has something whose gradient no operator stands for. `plain` names an engine
    whose kernels are known for decoders of softmax or latent attention and feed-forwards alone."""
    why = next(_missing(model), "")
    if why:
        raise InputError(f"{model.name} cannot be priced in training yet: it has {why}", where="model", hint=HINT)
    why = next(unusual(model), "") if plain else ""
    if why:
        message = f"{model.name} is not priced in training under {plain}: it has {why}"
        raise InputError(message, where="model", hint="Use the engine megatron.")


def _missing(model: Model) -> Iterator[str]:
    if model.towers:
        yield f"a tower beside the decoder ({', '.join(tower.name for tower in model.towers)})"
    if not model.has_head or not model.vocab:
        yield "no head that predicts tokens"
    for block in model.blocks:
        yield from _of_block(block)
    if not all(isinstance(part, Norm | Embedding | Linear) for part in model.stem + model.tail):
        yield "further parts before or after its layers"


def _of_block(block: Block) -> Iterator[str]:
    mixer = block.mixer
    if isinstance(mixer, AttentionMixer):
        if mixer.relative_buckets:
            yield "learned distances"
    elif mixer is not None and not isinstance(mixer, (LatentAttention, *RECURRENT)):
        yield f"layers of the kind {type(mixer).__name__}"
    if block.cross is not None:
        yield "cross-attention"
    if block.stream_norms not in ((1, 2) if block.parallel else (block.halves - 1, block.halves, 2 * block.halves)):
        yield f"{block.stream_norms} norms in a layer"
    if block.extras:
        yield f"further parts in its layers ({block.extras[0].name})"


def unusual(model: Model) -> Iterator[str]:
    """What plain decoders do not have."""
    for block in model.blocks:
        mixer = block.mixer
        if not isinstance(mixer, AttentionMixer | LatentAttention):
            yield "layers without attention" if mixer is None else f"layers of the kind {type(mixer).__name__}"
        if isinstance(mixer, AttentionMixer):
            features = {
                "attention in both directions": not mixer.causal,
                "attention sinks": mixer.sinks,
                "gated attention": mixer.output_gate,
                "ALiBi position biases": mixer.alibi,
                "windows that do not slide": mixer.chunked,
                "capped attention scores": mixer.logit_cap is not None,
                "keys and values of other layers": mixer.shared_kv,
                "values that are its keys": mixer.tied_values,
            }
            yield from (name for name, there in features.items() if there)
        if isinstance(mixer, LatentAttention) and mixer.indexer:
            yield "latent attention over chosen tokens"
        if block.ffn is None:
            yield "layers without a feed-forward"
        if not block.parallel and block.stream_norms != block.halves:
            yield f"{block.stream_norms} norms in a layer"
    if model.head_cap is not None:
        yield "capped logits"
    if model.stem or model.tail:
        yield "further parts before or after its layers"


def unshared(model: Model) -> Iterator[str]:
    """Layers whose sequences cannot lie on several ranks."""
    for block in model.blocks:
        if isinstance(block.mixer, RECURRENT):
            yield f"layers of the kind {type(block.mixer).__name__}"
        if isinstance(block.mixer, LatentAttention) and block.mixer.indexer:
            yield "layers that attend to chosen tokens"


def heads_of(block: Block) -> tuple[int, int]:
    """What tensor-parallel ranks share out of a mixer: query heads and key-value heads, of which latent attention has
    as many; heads and their groups of a state space; channels of the feed-forward where there is no mixer."""
    match block.mixer:
        case AttentionMixer(heads=heads, kv_heads=kv_heads):
            return heads, kv_heads
        case Mamba(inner=inner):
            return inner, inner
        case Mamba2(heads=heads, groups=groups):
            return heads, groups if groups > 1 else heads
        case GatedDelta(value_heads=heads, key_heads=groups):
            return heads, groups
        case ShortConvolution(width=width):
            return width, width
        case LatentAttention(heads=heads) | LightningAttention(heads=heads):
            return heads, heads
    return block.feed_forward.inner, block.feed_forward.inner


def windows_of(model: Model, seq: int) -> list[int]:
    """Windows shorter than a sequence."""
    found = [getattr(block.mixer, "window", None) for block in model.blocks]
    return [window for window in found if window is not None and window < seq]
