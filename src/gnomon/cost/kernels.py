"""The kernel models by operator kind: which sizes each needs, its seconds, and what a fit may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gnomon.cost import algebra, attention, conv, elementwise, gemm, latent, moe, scan
from gnomon.cost.residual import Axis
from gnomon.errors import unknown_name
from gnomon.graph.mixer_ops import MIXINGS
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

Coefficients = Mapping[str, float]
UNFITTED = 0.3
"""The spread of a formula whose figures no measurement has moved, and what a fit in another format adds: decodes over
an fp8 cache are 27% quicker by the bf16 fit than published for an H100, fp8 experts 16 to 78%."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """Physics with a few coefficients; `ranges` has where each one's fit starts, its least and its most."""

    kind: str
    columns: tuple[str, ...]
    seconds: Callable[[Shape, str, Chip, Coefficients], Floats]
    ranges: Mapping[str, tuple[float, float, float]]
    some: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """The same of coefficients that only rows have with a column of their first word's name."""
    axes: tuple[Axis, ...] = ()
    """Sizes over which a fit may learn what the formula leaves over."""
    spread: float = UNFITTED
    """What its formula may be off by (log) before anything is fitted."""


SCAN = ("sequences", "tokens", "heads", "head_dim", "state_dim", "groups", "chunk", "state_bytes")
MODELS = {
    model.kind: model
    for model in (
        KernelModel(
            kind="gemm",
            columns=("m", "n", "k"),
            seconds=gemm.seconds,
            ranges=gemm.COEFFICIENTS,
            some=gemm.ACROSS | gemm.QUANTISED,
            axes=gemm.AXES,
        ),
        KernelModel(
            kind="gemm_unaligned",
            columns=("m", "n", "k", "aligned"),
            seconds=gemm.unaligned_seconds,
            ranges=gemm.UNALIGNED,
            some=gemm.ACROSS,
        ),
        KernelModel(
            kind="conv",
            columns=("m", "n", "k", "batch", "bytes"),
            seconds=conv.seconds,
            ranges=conv.COEFFICIENTS,
        ),
        KernelModel(
            kind="conv_few",
            columns=("m", "n", "k", "batch", "bytes"),
            seconds=conv.few_seconds,
            ranges=conv.FEW,
        ),
        KernelModel(
            kind="conv_depthwise",
            columns=("m", "n", "k", "batch", "bytes"),
            seconds=conv.depthwise_seconds,
            ranges=conv.DEPTHWISE,
        ),
        KernelModel(
            kind="moe",
            columns=("tokens", "hidden", "inter", "experts", "topk"),
            seconds=moe.seconds,
            ranges=moe.COEFFICIENTS,
            some=moe.NON_LOCAL,
            axes=moe.AXES,
        ),
        KernelModel(
            kind="attention_decode",
            columns=("sequences", "context", "heads", "kv_heads", "head_dim"),
            seconds=attention.decode_seconds,
            ranges=attention.DECODE,
            axes=attention.DECODE_AXES,
        ),
        KernelModel(
            kind="attention_prefill",
            columns=("sequences", "tokens", "pairs", "context", "heads", "kv_heads", "head_dim"),
            seconds=attention.prefill_seconds,
            ranges=attention.PREFILL,
            axes=attention.PREFILL_AXES,
        ),
        KernelModel(
            kind="attention_forward",
            columns=("sequences", "tokens", "pairs", "context", "heads", "kv_heads", "head_dim"),
            seconds=attention.forward_seconds,
            ranges=attention.FORWARD,
            axes=attention.PREFILL_AXES,
        ),
        KernelModel(
            kind="attention_backward",
            columns=("sequences", "tokens", "pairs", "context", "heads", "kv_heads", "head_dim"),
            seconds=attention.backward_seconds,
            ranges=attention.BACKWARD,
        ),
        KernelModel(
            kind="mla_decode",
            columns=("sequences", "context", "heads", "kv_rank", "rope_dim"),
            seconds=latent.seconds,
            ranges=latent.COEFFICIENTS,
            axes=latent.AXES,
        ),
        KernelModel(
            kind="index_scores",
            columns=("tokens", "pairs", "context", "heads", "head_dim"),
            seconds=latent.index_seconds,
            ranges=latent.INDEX,
        ),
        *(
            KernelModel(
                kind=f"scan_prefill_{mixer}", columns=SCAN, seconds=scan.prefill(mixer), ranges=scan.PREFILL[mixer]
            )
            for mixer in MIXINGS
        ),
        *(
            KernelModel(kind=f"scan_decode_{mixer}", columns=SCAN, seconds=scan.decode(mixer), ranges=scan.DECODE)
            for mixer in MIXINGS
        ),
        KernelModel(
            kind="elementwise",
            columns=("bytes_read", "bytes_written"),
            seconds=elementwise.seconds,
            ranges=elementwise.COEFFICIENTS,
        ),
        KernelModel(
            kind="algebra",
            columns=("flops", "bytes", "steps"),
            seconds=algebra.seconds,
            ranges=algebra.COEFFICIENTS,
            spread=algebra.SPREAD,
        ),
    )
}


def kernel_model(kind: str) -> KernelModel:
    try:
        return MODELS[kind]
    except KeyError:
        raise unknown_name("operator kind", kind, MODELS) from None
