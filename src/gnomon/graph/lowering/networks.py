"""Whole networks in plain kernels: encoders, diffusion transformers, and decoders that attend to a tower."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.errors import InputError
from gnomon.graph.base import Graph
from gnomon.graph.lowering.plain import Kernels, check_plain, gemm, layers, matrix
from gnomon.graph.lowering.streams import streamed
from gnomon.graph.lowering.towers import stem_ops
from gnomon.graph.ops import LOGITS, TOKENS, Op, Rows
from gnomon.graph.style import POINTWISE, KernelStyle
from gnomon.spec import Linear, Model, Norm, Strategy

ALONE = Strategy()


def check_network(model: Model) -> None:
    """Raise where a layer of the network has no plain kernels."""
    why = check_plain(model.blocks)
    if why:
        raise InputError(f"{model.name} cannot be priced in plain kernels: it has {why}", where="model")


def encoder_graph(
    model: Model, kernels: Kernels, length: int, dtype: str, *, head: bool, strategy: Strategy = ALONE
) -> Graph:
    """Whole sequences of `length` tokens in both directions; with `head`, what follows the layers too."""
    style, how = kernels.style, kernels.over(model.blocks, length=length)
    return Graph(
        (
            *streamed("embedding", POINTWISE, model.hidden, 1),
            *stem_ops(model.stem, model.hidden, style, dtype),
            *layers(model.blocks, model.hidden, strategy, dtype, how),
            *streamed("last_norm", style.norm, model.hidden, int(model.final_norm)),
            *(_ends(model, style, dtype, TOKENS) if head else ()),
        )
    )


def diffusion_graph(model: Model, kernels: Kernels, length: int, dtype: str) -> Graph:
    """One step over `length` patches: the image's, and the time's and the class's once per sample."""
    style, how = kernels.style, kernels.over(model.blocks, length=length)
    first = (part for part in model.blocks[0].extras if isinstance(part, Linear))
    # The last modulation is made of the same vectors as a layer's, which are made for it once more.
    again = (matrix(part, dtype) for part in first if part.outputs == model.hidden)
    return Graph(
        (
            *stem_ops(model.stem, model.hidden, style, dtype),
            *layers(model.blocks, model.hidden, ALONE, dtype, how),
            *streamed("last_norm", style.norm, model.hidden, int(model.final_norm)),
            *again,
            *_ends(model, style, dtype, TOKENS),
        )
    )


def decoder_graph(model: Model, kernels: Kernels, length: int, source: int, dtype: str) -> Graph:
    """Prompts of `length` tokens or decodes, which attend to `source` tokens of a tower; without a source, layers
    that attend to one are skipped."""
    style, how = kernels.style, kernels.over(model.blocks, length=length, source=source)
    # Those with an encoder of text or sound have short prompts, and their code makes logits for all of them.
    rows = LOGITS if model.kind == "multimodal" else TOKENS
    return Graph(
        (
            *streamed("embedding", POINTWISE, model.hidden, 1),
            *layers(model.blocks, model.hidden, ALONE, dtype, how),
            *streamed("last_norm", style.norm, model.hidden, int(model.final_norm)),
            *_ends(model, style, dtype, rows),
        )
    )


def _ends(model: Model, style: KernelStyle, dtype: str, rows: Rows) -> Iterator[Op]:
    for part in model.tail:
        if isinstance(part, Linear):
            yield matrix(part, dtype)
        elif isinstance(part, Norm):
            yield from streamed(part.name, style.norm, part.width, 1)
    if model.has_head and model.vocab:
        yield gemm("head", rows, model.vocab, model.hidden, dtype)
