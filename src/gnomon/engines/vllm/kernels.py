"""Which kernel vLLM 0.24 runs a mixture's experts and a linear layer with, by chip, number format and degrees.

Read in its source (`vllm/model_executor/layers/fused_moe/oracle/*.py`, `is_supported_config` of each experts class,
`vllm/model_executor/kernels/linear/__init__.py`) for an install with FlashInfer, which its wheel requires. The first
kernel of a format's list that runs on a chip is the one it takes, unless `--moe-backend` names another.
"""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.engines.vllm.platforms import capability
from gnomon.graph.dtypes import without_kernel
from gnomon.spec import Chip

AUTO = "auto"
TRITON, MARLIN, DEEP_GEMM, CUTLASS = "triton", "marlin", "deep_gemm", "cutlass"
TRTLLM, FLASHINFER = "flashinfer_trtllm", "flashinfer_cutlass"
AITER, XPU = "aiter", "xpu"
BACKENDS = (AUTO, TRITON, MARLIN, DEEP_GEMM, CUTLASS, TRTLLM, FLASHINFER)
"""What `--moe-backend` may name of those that are priced."""

HOPPER, BLACKWELL = (9, 0), 10
_WIDE, _STATIC, _BLOCKS = ("bf16", "fp16"), "fp8-static", "fp8-blocks"
ORDER: Mapping[str, tuple[str, ...]] = {
    "bf16": (TRTLLM, FLASHINFER, TRITON),
    "fp16": (TRTLLM, FLASHINFER, TRITON),
    "fp8": (TRITON, MARLIN),
    _STATIC: (TRTLLM, FLASHINFER, TRITON, MARLIN),
    _BLOCKS: (TRTLLM, FLASHINFER, DEEP_GEMM, TRITON, MARLIN),
    "nvfp4": (TRTLLM, FLASHINFER, CUTLASS, MARLIN),
    "mxfp4-weights": (TRTLLM, TRITON, FLASHINFER, MARLIN),
    "mxfp4-mxfp8": (TRTLLM, FLASHINFER),
}
"""Kernels of experts in the order vLLM tries them on CUDA. `fp8` finds the scale of its inputs each step, as
`--quantization fp8` does: FlashInfer's experts are not eligible for it, and vLLM's own CUTLASS experts are left to
checkpoints with a scale for each channel. `fp8-static` has its inputs' scale stored. Formats that are not here run
with Marlin."""


def experts_kernel(dtype: str, chip: Chip, *, ep: int = 1, static: bool = False) -> str:
    """The kernel of experts in a format (`graph.dtypes`) on a chip, of a default install."""
    if chip.vendor != "NVIDIA":
        return XPU if chip.vendor == "Intel" else AITER if chip.vendor == "AMD" and _narrow(dtype) else TRITON
    found = [name for name in _order(dtype, chip, ep, static) if runs(name, dtype, chip)]
    return found[0] if found else MARLIN


def _order(dtype: str, chip: Chip, ep: int, static: bool) -> tuple[str, ...]:
    """On Hopper Triton comes before FlashInfer, but for experts in blocks of fp8 that several ranks share."""
    numbers = without_kernel(dtype)
    order = ORDER.get(_STATIC if static and numbers == "fp8" else numbers, (MARLIN,))
    if capability(chip) != HOPPER or numbers not in (*_WIDE, _BLOCKS):
        return order
    first = FLASHINFER if numbers == _BLOCKS and ep > 1 else TRITON
    return (first, *(name for name in order if name != first))


def runs(kernel: str, dtype: str, chip: Chip) -> bool:
    """Whether a kernel of experts runs a format on a chip (`_supports_current_device`, `_supports_quant_scheme`)."""
    number, numbers = capability(chip), without_kernel(dtype)
    if kernel == TRTLLM:
        return number[0] == BLACKWELL and numbers in (*_WIDE, "fp8", _BLOCKS, "nvfp4", "mxfp4-weights", "mxfp4-mxfp8")
    if kernel == FLASHINFER:
        if number != HOPPER and number[0] not in (BLACKWELL, 12):
            return False
        if numbers in (_BLOCKS, "mxfp4-weights"):
            return number == HOPPER
        return numbers in (*_WIDE, "fp8") or (numbers in ("nvfp4", "mxfp4-mxfp8") and number[0] >= BLACKWELL)
    if kernel == DEEP_GEMM:
        return numbers == _BLOCKS and (number == HOPPER or number[0] == BLACKWELL)
    if kernel == CUTLASS:
        return (numbers == "nvfp4" and number[0] >= BLACKWELL) or (numbers == "fp8" and number[0] in (9, BLACKWELL))
    if kernel == TRITON:
        if numbers == "mxfp4-weights":
            return HOPPER <= number < (11, 0)
        return numbers in _WIDE or (numbers in ("fp8", _BLOCKS) and number >= (8, 9))
    return kernel == MARLIN and _narrow(numbers) and numbers != "mxfp4-mxfp8" and number >= (7, 5)


def _narrow(dtype: str) -> bool:
    return without_kernel(dtype) not in _WIDE


PUBLISHED = (
    ("flashinfer_trtllm", TRTLLM),
    ("flashinfer_cutlass", FLASHINFER),
    ("marlin", MARLIN),
    ("triton", TRITON),
    ("fused_moe", TRITON),
    ("xpu", XPU),
)
"""What the kernels of experts are called in AIConfigurator's tables of vLLM: parts of names, the first that is found
counts. `vllm_fused_moe`, of releases before 0.24, is Triton's."""
UNTUNED = ((FLASHINFER, "fp8", "Hopper"),)
"""Kernels, formats and architectures that a server tunes when it starts (`enable_flashinfer_autotune`, on by default)
and the published tables did not: FlashInfer's CUTLASS experts in fp8 take an H100 2.3 to 4.6 times as long there as the
same kernels do in TensorRT-LLM's table, which are tuned (AIConfigurator 0.12, 89 equal shapes)."""


MXFP4 = ("mxfp4-weights", "mxfp4-mxfp8")
MXFP4_STEPS = {TRITON: (64, 1), MARLIN: (128, 256), TRTLLM: (256, 256), FLASHINFER: (128, 128)}
"""Multiples that kernels of experts in mxfp4 pad inner and hidden channels to, with weights of nothing, which they
multiply like the others (`mxfp4_round_up_hidden_size_and_intermediate_size`): gpt-oss's 2,880 hidden channels become
3,072, and the 360 inner ones that a rank of 8 has 384 or 512."""


def padded_to(dtype: str, kernel: str) -> tuple[int, int]:
    """Multiples that a kernel pads inner and hidden channels of experts in a format to."""
    return MXFP4_STEPS.get(kernel, (1, 1)) if without_kernel(dtype) in MXFP4 else (1, 1)


def published_kernel(name: str) -> str:
    """The kernel of experts that a published row of vLLM's is of; empty where its name says nothing."""
    return next((kernel for part, kernel in PUBLISHED if part in name), "")
