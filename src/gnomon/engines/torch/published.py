"""Kernels between GEMMs in the published code of networks, where they differ from PyTorch's fused kernels.

Counted by tracing transformers 5.17 with `gnomon.trace`; tests/oracles/test_network_kernels.py traces them again.
"""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.torch.eager.forms import find_efficiency
from gnomon.engines.torch.eager.streams import STRIDED
from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.engines.torch.style import style
from gnomon.graph.lowering.plain import Kernels
from gnomon.graph.style import NOTHING, KernelStyle, Stream
from gnomon.spec import Model, Tower


def published(model: Model, part: Model | Tower) -> Kernels:
    """The kernels of one part of a network."""
    centred, tower = part.norm_bias or model.centred_norms, isinstance(part, Tower)
    own = half_style(replace(model, norm_bias=centred))
    if not centred:
        own = replace(own, norm=_root_mean_square())
    broadcast, heads, copy = _efficiency("broadcast"), _efficiency("copy.heads"), _efficiency("copy")
    # Keys and values of a source are each concatenated with an empty cache.
    beside, kept = NOTHING, Stream.chain(*2 * [(0.5, 0.5, heads)])
    if model.family == "t5":
        # Its GELU is eight kernels where it gates, and a ReLU where it does not.
        add = _efficiency("add")
        own = replace(own, plain=Stream(1, 1, 0, 0, efficiency=add), gated=Stream(10, 8, 0, 0, 8, efficiency=add))
    if model.family == "modernbert":
        # GEMMs are fused, and gate and up are the halves of one result.
        product = replace(own.product, efficiency=broadcast)
        own = replace(own, joined=True, rope=_rope_in_fp32(), product=product)
    if model.family == "whisper":
        # Queries are scaled; heads are transposed for queries, keys and values, and back.
        beside = Stream.chain((1, 1, _efficiency("add")), *4 * [(1, 1, heads)])
        kept = Stream.chain(*2 * [(0.5, 0.5, heads), (0.5, 0.5, copy)])
        if tower:
            # Its convolutions leave channels first, and every residual after them is strided.
            own = replace(own, residual=replace(own.residual, efficiency=_efficiency("pointwise.strided", STRIDED)))
    return Kernels(
        style=own,
        beside=beside,
        kept=kept,
        scaled=Stream(1, 1, 0, 0, efficiency=broadcast),
        # Llama's tower masks tiles that an image does not fill.
        masked=model.family == "mllama" and tower,
        efficiency=_efficiency("attention"),
        masked_efficiency=_efficiency("attention.efficient"),
        skips=False,
        # The mask is broadcast over sequences and converted to numbers: cleared, then filled.
        window_mask=Stream.chain((0.1, 0.5, broadcast), (0, 1, _efficiency("zero")), (1.5, 1, _efficiency("add"))),
    )


def half_style(model: Model) -> KernelStyle:
    """PyTorch's kernels in 16 bits, with their efficiencies inside a captured step."""
    own = style(model)
    return replace(
        own,
        norm=replace(own.norm, efficiency=_efficiency("layer_norm" if model.norm_bias else "rms_norm")),
        residual=replace(own.residual, efficiency=_efficiency("add")),
        gated=replace(own.gated, efficiency=_efficiency("silu")),
        plain=replace(own.plain, efficiency=_efficiency("gelu")),
        product=replace(own.product, efficiency=_efficiency("mul")),
    )


def _root_mean_square() -> Stream:
    """An RMS norm in separate kernels: widened, squared, averaged, scaled, narrowed and weighted, with two kernels over
    one number per token between them."""
    return Stream.chain(
        (1, 2, _efficiency("widen")),
        (2, 2, _efficiency("mul", wide=True)),
        (2, 0, _efficiency("reduce.rows", wide=True)),
        (1, 2, _efficiency("broadcast", wide=True)),
        (2, 1, _efficiency("narrow")),
        (1, 1, _efficiency("broadcast")),
        small=2,
    )


def _rope_in_fp32() -> Stream:
    """Rotary embedding of queries and keys in fp32: widened twice, multiplied by two tables, rotated, added, cast."""
    across = _efficiency("broadcast", wide=True)
    each = (
        (0.5, 1, _efficiency("widen")),
        (0.5, 1, _efficiency("widen")),
        (0.5, 0.5, across),
        (1, 1, _efficiency("copy", wide=True)),
        (1, 1, across),
        (1, 1, across),
        (2, 1, _efficiency("pointwise.strided", STRIDED, wide=True)),
        (1, 0.5, _efficiency("narrow")),
    )
    return Stream.chain(*each, *each)


def _efficiency(*names: str, wide: bool = False) -> float:
    return find_efficiency(efficiencies(), wide, *names)
