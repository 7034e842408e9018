"""What of a model has operators, and what no engine can price yet: the one place where models are refused for shape.

Training refuses by itself, in `graph/trained.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
from gnomon.graph.formats import known
from gnomon.spec import (
    AttentionMixer,
    Block,
    CrossAttention,
    DenseFfn,
    Format,
    LatentAttention,
    Model,
    MoeFfn,
    Tower,
)


def check_priced(model: Model, dtype: str | None = None) -> None:
    """Raise InputError where the model has something no operator stands for, as stored in `dtype` where given.

    Engines call it first, so that nothing behind it meets such a model.
    """
    why = unpriced(model) or (unpriced_format(model, dtype) if dtype else "")
    if why:
        hint = "`gnomon models show` opens its shapes; decoders of tokens are priced."
        if not unpriced_step(model):
            hint = "`gnomon predict` prices one step of it; serving loads and training runs of it are not priced."
        raise InputError(f"{model.name} cannot be priced yet: it has {why}", where="model", hint=hint)


def unpriced(model: Model) -> str:
    """The first thing of a model that has no operators when it is served or trained; empty where everything has."""
    return next(_missing(model), "")


def unpriced_step(model: Model) -> str:
    """The first thing of a model that has no operators in a single step, for which there are operators of towers,
    encoders and diffusion as well."""
    attends = any(isinstance(block.mixer, CrossAttention) for block in model.blocks)
    if attends or model.kind in ("encoder", "diffusion", "encoder-decoder"):
        return check_plain(model.blocks)
    return unpriced(model.alone if model.towers else model)


def unpriced_format(model: Model, dtype: str) -> str:
    """The first format of a matrix that no GEMM can be priced in; empty where there is none."""
    if dtype != model.dtype:
        return ""
    stored = [format for block in model.blocks for _, format in block.formats]
    stored += [model.head_format] if model.head_format else []
    return next((f"weights in {format.name}" for format in stored if not known(format)), "")


def _missing(model: Model) -> Iterator[str]:
    """A step of text runs no tower, unless its layers attend to one."""
    if not model.has_head or not model.vocab:
        yield "no head that predicts tokens"
    for block in model.blocks:
        if block.cross is not None or isinstance(block.mixer, CrossAttention):
            yield "cross-attention"
        if isinstance(block.mixer, AttentionMixer):
            yield from _of_attention(block.mixer)
        if isinstance(block.mixer, LatentAttention) and block.mixer.window is not None:
            yield "a window over latents"
        if not block.parallel and block.stream_norms not in (block.halves, 2 * block.halves):
            yield f"{block.stream_norms} norms in a layer"
        if isinstance(block.ffn, MoeFfn) and (not block.ffn.gated or block.ffn.latent):
            yield "experts of another kind (ungated, or with latent projections)"
        if len(_expert_formats(block)) > 1:
            yield "experts whose matrices are in different formats"


def _expert_formats(block: Block) -> set[Format | None]:
    """Those of the matrices of experts, which one kernel reads."""
    formats = dict(block.formats)
    return {formats.get(tensor.role) for tensor in block.tensors(1) if tensor.role.startswith("expert_")}


def _of_attention(mixer: AttentionMixer) -> Iterator[str]:
    if not mixer.causal:
        yield "attention in both directions"
    if mixer.relative_buckets:
        yield "learned distances"


def check_network(model: Model) -> None:
    """Raise where a layer of the network has no plain kernels."""
    why = check_plain(model.blocks)
    if why:
        raise InputError(f"{model.name} cannot be priced in plain kernels: it has {why}", where="model")


def check_tower(tower: Tower, tp: int) -> None:
    """Raise where a tower has layers without plain kernels, or such that `tp` ranks cannot share."""
    why = check_plain(tower.blocks)
    if why:
        raise InputError(f"its {tower.name} part cannot be priced yet: it has {why}", where="model")
    for block in tower.blocks:
        heads = block.mixer.heads if isinstance(block.mixer, AttentionMixer) else tp
        inner = block.ffn.inner if isinstance(block.ffn, DenseFfn) else tp
        for what, size in (("attention heads", heads), ("feed-forward channels", inner)):
            if size % tp:
                near = max(degree for degree in range(1, tp) if not size % degree)
                message = f"its {tower.name} part has {size} {what}, which {tp} does not divide"
                raise InputError(message, where="--tp", hint=f"The nearest degree that works is {near}.")


def check_plain(blocks: tuple[Block, ...]) -> str:
    """What of some layers has no plain kernels; empty where all has."""
    for block in blocks:
        for part in (block.mixer, block.ffn):
            if part is not None and not isinstance(part, (AttentionMixer, CrossAttention, DenseFfn)):
                return f"layers of another kind ({type(part).__name__})"
        if isinstance(block.mixer, AttentionMixer):
            why = _unusual(block.mixer)
            if why:
                return why
        if block.parallel:
            return "attention and feed-forward side by side"
    return ""


def _unusual(shape: AttentionMixer) -> str:
    features = {
        "a causal window": shape.causal and shape.window is not None,
        "capped attention scores": shape.logit_cap is not None,
        "attention sinks": shape.sinks,
        "gated attention": shape.output_gate,
        "ALiBi position biases": shape.alibi,
        "keys and values of other layers": shape.shared_kv,
        "values that are its keys": shape.tied_values,
    }
    return next((name for name, there in features.items() if there), "")
