"""The kernel models by operator kind: which sizes each needs, its seconds, and what a fit may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gnomon.cost import attention, elementwise, gemm, moe
from gnomon.errors import unknown_name
from gnomon.graph.ops import Shape
from gnomon.spec import Chip
from gnomon.spec.workload import Floats

Coefficients = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """Physics with a few coefficients: where their fit starts, and the range in which they make sense."""

    kind: str
    columns: tuple[str, ...]
    seconds: Callable[[Shape, str, Chip, Coefficients], Floats]
    start: Coefficients
    lowest: Coefficients
    highest: Coefficients


MODELS = {
    model.kind: model
    for model in (
        KernelModel(
            kind="gemm",
            columns=("m", "n", "k"),
            seconds=gemm.seconds,
            start=gemm.START,
            lowest=gemm.LOWEST,
            highest=gemm.HIGHEST,
        ),
        KernelModel(
            kind="moe",
            columns=("tokens", "hidden", "inter", "experts", "topk"),
            seconds=moe.seconds,
            start=moe.START,
            lowest=moe.LOWEST,
            highest=moe.HIGHEST,
        ),
        KernelModel(
            kind="attention_decode",
            columns=("sequences", "context", "heads", "kv_heads", "head_dim"),
            seconds=attention.decode_seconds,
            start=attention.DECODE_START,
            lowest=attention.DECODE_LOWEST,
            highest=attention.DECODE_HIGHEST,
        ),
        KernelModel(
            kind="attention_prefill",
            columns=("sequences", "tokens", "pairs", "context", "heads", "kv_heads", "head_dim"),
            seconds=attention.prefill_seconds,
            start=attention.PREFILL_START,
            lowest=attention.PREFILL_LOWEST,
            highest=attention.PREFILL_HIGHEST,
        ),
        KernelModel(
            kind="elementwise",
            columns=("bytes_read", "bytes_written"),
            seconds=elementwise.seconds,
            start=elementwise.START,
            lowest=elementwise.LOWEST,
            highest=elementwise.HIGHEST,
        ),
    )
}


def kernel_model(kind: str) -> KernelModel:
    try:
        return MODELS[kind]
    except KeyError:
        raise unknown_name("operator kind", kind, MODELS) from None
