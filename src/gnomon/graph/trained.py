"""What of a model has gradients: the one place where models are refused for training because of their shape."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
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
    Model,
    ShortConvolution,
)

HINT = "`gnomon models show` opens its shapes."
RECURRENT = (Mamba, Mamba2, GatedDelta, LightningAttention, ShortConvolution)
"""Mixers that keep a state, with gradients."""


def check_trained(model: Model, plain: str = "") -> None:
    """Raise InputError where the model has something whose gradient no operator stands for. `plain` names an engine
    whose kernels are known for decoders of softmax or latent attention and feed-forwards alone."""
    why = next(_missing(model), "")
    if why:
        raise InputError(f"{model.name} cannot be priced in training yet: it has {why}", where="model", hint=HINT)
    further = "layers that predict further tokens" if model.mtp else ""
    why = next(unusual(model), further) if plain else ""
    if why:
        message = f"{model.name} is not priced in training under {plain}: it has {why}"
        raise InputError(message, where="model", hint="Use the engine megatron.")


def _missing(model: Model) -> Iterator[str]:
    if len(model.towers) != len(model.beside):
        yield f"a tower beside the decoder ({', '.join(tower.name for tower in model.towers)})"
    if model.attends and not model.beside:
        yield "cross-attention to nothing that is given"
    for tower in model.towers:
        for block in tower.blocks:
            yield from _of_tower(tower.name, block)
    for block in model.blocks:
        yield from _of_block(block)


def _of_tower(name: str, block: Block) -> Iterator[str]:
    if not isinstance(block.mixer, AttentionMixer) or not isinstance(block.ffn, DenseFfn):
        yield f"a {name} part of another kind than attention and feed-forward"
    yield from _of_block(block)


def _of_block(block: Block) -> Iterator[str]:
    if block.stream_norms not in ((1, 2) if block.parallel else (block.halves - 1, block.halves, 2 * block.halves)):
        yield f"{block.stream_norms} norms in a layer"
    if block.extras and not (block.modulated or block.gated):
        yield f"further parts in its layers ({block.extras[0].name})"


def unusual(model: Model) -> Iterator[str]:
    """What plain decoders do not have."""
    if model.beside:
        yield f"a tower beside the decoder ({', '.join(tower.name for tower in model.towers)})"
    if not model.vocab or not model.has_head:
        yield "no head that predicts tokens"
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
                "learned distances": mixer.relative_buckets > 0,
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
        if block.cross is not None:
            yield "cross-attention"
        if block.extras:
            yield f"further parts in its layers ({block.extras[0].name})"
    if model.head_cap is not None:
        yield "capped logits"
    if model.stem or model.tail:
        yield "further parts before or after its layers"


def tower_blocks(model: Model) -> tuple[Block, ...]:
    """Layers of the towers that are trained beside a decoder."""
    return tuple(block for tower in model.towers[: len(model.beside)] for block in tower.blocks)


def unpiped(model: Model) -> str:
    """What of a network would have to go from stage to stage beside its stream; empty where nothing has to."""
    return "layers that attend to what a tower has made" if model.attends else ""


def unshared(model: Model) -> Iterator[str]:
    """Layers whose sequences cannot lie on several ranks."""
    if model.kind == "encoder-decoder":
        yield "an encoder and a decoder"
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
        case CrossAttention(heads=heads, kv_heads=kv_heads):
            return heads, kv_heads
    return block.feed_forward.inner, block.feed_forward.inner


def windows_of(model: Model, seq: int) -> list[int]:
    """Windows shorter than a sequence."""
    found = [getattr(block.mixer, "window", None) for block in model.blocks]
    return [window for window in found if window is not None and window < seq]
