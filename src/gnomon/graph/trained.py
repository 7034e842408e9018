"""What of a model has gradients: the one place where models are refused for training because of their shape."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
from gnomon.spec import AttentionMixer, Block, LatentAttention, Model, MoeFfn
from gnomon.spec.parts import part_tensors

HINT = "Dense networks and mixtures of experts are priced in training, with softmax or latent attention."


def check_trained(model: Model) -> None:
    """Raise InputError where the model has something whose gradient no operator stands for."""
    why = next(_missing(model), "")
    if why:
        raise InputError(f"{model.name} cannot be priced in training yet: it has {why}", where="model", hint=HINT)


def _missing(model: Model) -> Iterator[str]:
    if model.towers:
        yield f"a tower beside the decoder ({', '.join(tower.name for tower in model.towers)})"
    if not model.has_head or not model.vocab:
        yield "no head that predicts tokens"
    if model.embedding_width:
        yield "an embedding narrower than its layers"
    for block in model.blocks:
        yield from _of_block(block)
    if model.stem or any(tensor.columns > 1 for tensor in part_tensors(model.tail)):
        yield "further parts before or after its layers"


def _of_block(block: Block) -> Iterator[str]:
    mixer, ffn = block.mixer, block.ffn
    if isinstance(mixer, AttentionMixer):
        yield from _of_attention(mixer)
    elif not isinstance(mixer, LatentAttention):
        yield "layers without attention" if mixer is None else f"layers of the kind {type(mixer).__name__}"
    elif mixer.indexer:
        yield "latent attention over chosen tokens"
    if ffn is None:
        yield "layers without a feed-forward"
    if block.cross is not None:
        yield "cross-attention"
    if block.stream_norms not in ((1, 2) if block.parallel else (2,)):
        yield f"{block.stream_norms} norms in a layer"
    if block.extras:
        yield f"further parts in its layers ({block.extras[0].name})"
    if isinstance(ffn, MoeFfn) and ffn.latent:
        yield "experts with latent projections"


def _of_attention(mixer: AttentionMixer) -> Iterator[str]:
    features = {
        "attention in both directions": not mixer.causal,
        "capped attention scores": mixer.logit_cap is not None,
        "attention sinks": mixer.sinks,
        "gated attention": mixer.output_gate,
        "ALiBi position biases": mixer.alibi,
        "learned distances": mixer.relative_buckets > 0,
        "keys and values of other layers": mixer.shared_kv,
        "values that are its keys": mixer.tied_values,
        "windows that do not slide": mixer.chunked,
    }
    yield from (name for name, there in features.items() if there)


def heads_of(block: Block) -> tuple[int, int]:
    """Query heads and key-value heads of a layer; latent attention has as many of one as of the other."""
    if isinstance(block.mixer, LatentAttention):
        return block.mixer.heads, block.mixer.heads
    return block.attention.heads, block.attention.kv_heads


def windows_of(model: Model, seq: int) -> list[int]:
    """Windows shorter than a sequence."""
    found = [getattr(block.mixer, "window", None) for block in model.blocks]
    return [window for window in found if window is not None and window < seq]
