"""Kernel variants: PyTorch has fast ones for contiguous, vector-aligned tensors of equal layout, and slower ones for
the rest."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from gnomon.graph.ops import ROW_BYTES
from gnomon.spec.traced import Call, TensorSpec

NARROW, SHORT = 1024, 512
"""Values of a row: sums down columns narrower than this, and along rows shorter than this, were measured as slow."""
ROW = "gather.row_bytes"


def find_efficiency(efficiencies: Mapping[str, float], wide: bool, *names: str) -> float:
    """The efficiency of the first name that was measured in this format, or in any; 1 where none was."""
    format = "float32" if wide else "bfloat16"
    for name in names:
        for key in (f"{name}.{format}", name):
            if key in efficiencies:
                return efficiencies[key]
    return 1.0


def form_of(call: Call, kernel: str, made: TensorSpec) -> str:
    """The kernel's name with the suffix of its variant."""
    if kernel == "pointwise":
        return _pointwise(call, made)
    if kernel == "copy":
        return _copy(call, made)
    if kernel == "reduce" and call.inputs:
        return _reduce(call.inputs[0], made, call.options.get("dim"))
    if kernel == "pool":
        return "pool.wide" if _overlaps(call) else "pool"
    return kernel


def _pointwise(call: Call, made: TensorSpec) -> str:
    operands = [spec for spec in call.inputs if spec.values > 1]
    if any(_transposed(spec, made) for spec in operands):
        return "pointwise.strided"
    same_layout = all(spec.shape == made.shape and spec.stride == made.stride for spec in operands)
    return "pointwise" if same_layout else "broadcast"


def _copy(call: Call, made: TensorSpec) -> str:
    operands = [spec for spec in call.inputs if spec.values > 1]
    for spec in operands:
        if _transposed(spec, made):
            return "copy.heads" if spec.order[-1] == made.order[-1] else "copy.strided"
    if len(operands) > 1:
        side = [spec for spec in operands if spec.shape[:-1] == made.shape[:-1] and spec.shape != made.shape]
        odd = any(spec.shape[-1] * spec.item_bytes % ROW_BYTES for spec in side if spec.shape)
        return "copy.odd" if odd else "copy"
    if len(operands) == 1 and operands[0].item_bytes != made.item_bytes:
        return "widen" if made.item_bytes > operands[0].item_bytes else "narrow"
    apart = any(spec.shape == made.shape and spec.stride != made.stride for spec in operands)
    return "copy.part" if apart else "copy"


def _transposed(spec: TensorSpec, made: TensorSpec) -> bool:
    """Whether an operand has the result's shape in another dimension order."""
    return spec.bytes == spec.stored_bytes and spec.shape == made.shape and spec.order != made.order


def _reduce(spec: TensorSpec, made: TensorSpec, dim: object) -> str:
    count = len(spec.shape)
    given = [dim] if isinstance(dim, int) else list(dim) if isinstance(dim, (list, tuple)) else []
    gone = sorted({int(i) % count for i in given}) if count and given else list(range(count))
    if not gone or len(gone) == count:
        return "reduce.rows"
    if gone[-1] < count - 1:
        return "reduce" if prod(spec.shape[gone[-1] + 1 :]) >= NARROW else "reduce.tall"
    if gone[-1] - gone[0] + 1 != len(gone):
        return "reduce.channels"
    return "reduce.rows" if prod(spec.shape[i] for i in gone) >= SHORT else "reduce.short"


def _overlaps(call: Call) -> bool:
    """Whether pooling windows overlap."""
    kernel, stride = call.options.get("kernel_size"), call.options.get("stride")
    if not isinstance(kernel, (list, tuple)) or not isinstance(stride, (list, tuple)) or not stride:
        return False
    return bool(kernel[0] > stride[0])


def gather_efficiency(efficiencies: Mapping[str, float], made: TensorSpec, moved: float) -> float | None:
    """Efficiency of a gather of vector-aligned rows, whose kernel has a fixed cost per row."""
    row = made.shape[-1] * made.item_bytes if len(made.shape) == 2 else prod(made.shape[1:]) * made.item_bytes
    if ROW not in efficiencies or not made.shape or row % ROW_BYTES:
        return None
    return min(1.0, moved / (made.shape[0] * efficiencies[ROW]))
