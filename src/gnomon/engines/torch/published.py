"""Kernels between GEMMs in the published code of networks, where they differ from PyTorch's fused kernels.

Counted by tracing transformers 5.17 with `gnomon.trace`; tests/oracles/test_network_kernels.py traces them again.
"""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.torch.eager.forms import find_efficiency
from gnomon.engines.torch.eager.streams import STRIDED
from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.engines.torch.style import style
from gnomon.graph.dtypes import width
from gnomon.graph.layers.writer import WIDE
from gnomon.graph.style import NOTHING, POINTWISE, STREAMING_EFFICIENCY, KernelStyle, Stream
from gnomon.spec import Model, Tower


def published(model: Model, part: Model | Tower, dtype: str = "bf16") -> KernelStyle:
    """The kernels of one part of a network."""
    centred, tower = part.norm_bias or model.centred_norms, isinstance(part, Tower)
    own = half_style(replace(model, norm_bias=centred))
    if not centred:
        own = replace(own, norm=_root_mean_square(wide=width(dtype) == WIDE))
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
        own = replace(own, joined=True, rope=_rope_in_fp32(wide=width(dtype) == WIDE), product=product)
    if model.family == "whisper":
        # Queries are scaled; heads are transposed for queries, keys and values, and back.
        beside = Stream.chain((1, 1, _efficiency("add")), *4 * [(1, 1, heads)])
        kept = Stream.chain(*2 * [(0.5, 0.5, heads), (0.5, 0.5, copy)])
        if tower:
            # Its convolutions leave channels first, and every residual after them is strided.
            own = replace(own, residual=replace(own.residual, efficiency=_efficiency("pointwise.strided", STRIDED)))
    if model.family == "dit":
        # What attention gives is divided by a factor of 1.
        beside = POINTWISE
    modulate, scaled = Stream.chain(*2 * [(1, 1, broadcast)]), Stream(1, 1, 0, 0, efficiency=broadcast)
    if model.family == "wan" and not tower:
        own, modulate, scaled = _modulated_in_fp32(own)
    return replace(
        own,
        beside_attention=beside,
        kept_source=kept,
        modulate=modulate,
        scaled=POINTWISE if model.family == "mllama" else scaled,
        # Llama's tower masks tiles that an image does not fill.
        masked=model.family == "mllama" and tower,
        attention_efficiency=_efficiency("attention.wide" if width(dtype) == WIDE else "attention"),
        masked_efficiency=_efficiency("attention.wide" if width(dtype) == WIDE else "attention.efficient"),
        skips_windows=False,
        # The mask is broadcast over sequences and converted to numbers: cleared, then filled.
        window_mask=Stream.chain((0.1, 0.5, broadcast), (0, 1, _efficiency("zero")), (1.5, 1, _efficiency("add"))),
    )


def _modulated_in_fp32(own: KernelStyle) -> tuple[KernelStyle, Stream, Stream]:
    """Norms, shifts, scales, gates and the sums behind them in fp32: the stream is widened and narrowed around each.
    Queries and keys are normed over all heads, and turn in fp32."""
    widen, narrow = (1, 2, _efficiency("widen")), (2, 1, _efficiency("narrow"))
    across, add = _efficiency("broadcast", wide=True), _efficiency("add", wide=True)
    norm = Stream.chain(widen, (2, 2, _efficiency("layer_norm", wide=True)), narrow)
    turned = [(0.5, 1, across)] * 4 + [(2, 0.5, _efficiency("pointwise.strided", STRIDED, wide=True))] * 2
    return (
        replace(
            own,
            norm=norm,
            head_norm=_root_mean_square(wide=False),
            residual=Stream.chain(widen, (4, 2, add), narrow),
            rope=Stream.chain(*turned),
        ),
        Stream.chain(*2 * [(2, 2, across)]),
        Stream(1, 2, 0, 0, efficiency=across),
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
        rope_in_place=True,
        uncached=STREAMING_EFFICIENCY,
    )


def _root_mean_square(wide: bool) -> Stream:
    """An RMS norm in separate kernels: widened, squared, averaged, scaled, narrowed and weighted, with two kernels over
    one number per token between them. Values of fp32 are neither widened nor narrowed."""
    if wide:
        across = _efficiency("broadcast", wide=True)
        squared = (1, 1, _efficiency("mul", wide=True))
        return Stream.chain(
            squared, (1, 0, _efficiency("reduce.rows", wide=True)), (1, 1, across), (1, 1, across), small=2
        )
    return Stream.chain(
        (1, 2, _efficiency("widen")),
        (2, 2, _efficiency("mul", wide=True)),
        (2, 0, _efficiency("reduce.rows", wide=True)),
        (1, 2, _efficiency("broadcast", wide=True)),
        (2, 1, _efficiency("narrow")),
        (1, 1, _efficiency("broadcast")),
        small=2,
    )


def _rope_in_fp32(wide: bool) -> Stream:
    """Rotary embedding of queries and keys in fp32: widened twice, multiplied by two tables, rotated, added, cast."""
    across = _efficiency("broadcast", wide=True)
    if wide:
        half = (0.5, 0.5, across)
        turned, added = (0.5, 0.5, _efficiency("copy", wide=True)), _efficiency("pointwise.strided", STRIDED, wide=True)
        alone = (half, turned, half, (1, 0.5, added))
        return Stream.chain(*alone, *alone)
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
