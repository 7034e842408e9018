"""The kernel models by operator kind: its seconds, and what a fit may change."""

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
an fp8 cache are 27% faster by the bf16 fit than published for an H100, fp8 experts 16 to 78%."""


@dataclass(frozen=True, slots=True)
class KernelModel:
    """Physics with a few coefficients; `ranges` has where each one's fit starts, its least and its most."""

    kind: str
    seconds: Callable[[Shape, str, Chip, Coefficients], Floats]
    ranges: Mapping[str, tuple[float, float, float]]
    some: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """Ranges of coefficients that apply only to tables with a column of their first word's name."""
    axes: tuple[Axis, ...] = ()
    """Sizes over which the residual of the formula may be fitted."""
    spread: float = UNFITTED
    """What its formula may be off by (log) before anything is fitted."""


_MODELS = (
    KernelModel("gemm", gemm.seconds, gemm.COEFFICIENTS, some=gemm.ACROSS | gemm.QUANTISED, axes=gemm.AXES),
    KernelModel("gemm_unaligned", gemm.unaligned_seconds, gemm.UNALIGNED, some=gemm.ACROSS),
    KernelModel("conv", conv.seconds, conv.COEFFICIENTS),
    KernelModel("conv_few", conv.few_seconds, conv.FEW),
    KernelModel("conv_depthwise", conv.depthwise_seconds, conv.DEPTHWISE),
    KernelModel("moe", moe.seconds, moe.COEFFICIENTS, some=moe.NON_LOCAL, axes=moe.AXES),
    KernelModel("attention_decode", attention.decode_seconds, attention.DECODE, axes=attention.DECODE_AXES),
    KernelModel("attention_prefill", attention.prefill_seconds, attention.PREFILL, axes=attention.PREFILL_AXES),
    KernelModel("attention_forward", attention.forward_seconds, attention.FORWARD, axes=attention.PREFILL_AXES),
    KernelModel("attention_backward", attention.backward_seconds, attention.BACKWARD),
    KernelModel("mla_decode", latent.seconds, latent.COEFFICIENTS, axes=latent.AXES),
    KernelModel("mla_backward", latent.backward_seconds, latent.BACKWARD, spread=latent.BACKWARD_SPREAD),
    KernelModel("index_scores", latent.index_seconds, latent.INDEX),
    *(KernelModel(f"scan_prefill_{mixer}", scan.prefill(mixer), scan.PREFILL[mixer]) for mixer in MIXINGS),
    *(KernelModel(f"scan_backward_{m}", scan.prefill(m, "backward"), scan.BACKWARD[m]) for m in MIXINGS),
    *(KernelModel(f"scan_decode_{mixer}", scan.decode(mixer), scan.DECODE) for mixer in MIXINGS),
    KernelModel("elementwise", elementwise.seconds, elementwise.COEFFICIENTS),
    KernelModel("algebra", algebra.seconds, algebra.COEFFICIENTS, spread=algebra.SPREAD),
)
MODELS = {model.kind: model for model in _MODELS}


def kernel_model(kind: str) -> KernelModel:
    try:
        return MODELS[kind]
    except KeyError:
        raise unknown_name("operator kind", kind, MODELS) from None
