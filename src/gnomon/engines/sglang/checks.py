"""What SGLang 0.5.23 runs: chips, weight formats, cuts. Its layers come from vLLM's, and so do the rules of formats and
cuts here; errors name the engine that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.engines.base import Deployment
from gnomon.engines.vllm.blocks import check_blocks
from gnomon.engines.vllm.formats import check_formats
from gnomon.engines.vllm.platforms import capability
from gnomon.engines.vllm.weights import check_cuts
from gnomon.errors import GnomonError
from gnomon.spec import Chip

LEAST_CAPABILITY = (7, 5)
"""The kernels of sgl-kernel are built from compute capability 7.5 on (its installation page)."""
AMD = ("CDNA 3", "CDNA3", "CDNA 4", "CDNA4")


def not_run(chip: Chip) -> str:
    """Why SGLang does not run on a chip, as a sentence; empty where it does."""
    if chip.vendor == "NVIDIA":
        return "" if capability(chip) >= LEAST_CAPABILITY else "SGLang 0.5.23 needs compute capability 7.5 or later"
    if chip.vendor == "AMD" and chip.architecture in AMD:
        return ""
    return f"SGLang 0.5.23 is not known to run on {chip.vendor} {chip.architecture} here"


@contextmanager
def as_sglang() -> Iterator[None]:
    """Errors of rules that both engines share speak of SGLang."""
    try:
        yield
    except GnomonError as error:
        error.message = error.message.replace("vLLM", "SGLang").replace("vllm", "sglang")
        error.hint = error.hint.replace("vLLM", "SGLang")
        raise


def check_weights(deployment: Deployment, *, cut: bool) -> None:
    """Raise InputError for formats that do not run on the chip, or that ranks cannot share."""
    with as_sglang():
        check_formats(deployment)
        if cut:
            check_cuts(deployment.model, deployment.strategy)
        if not deployment.techniques.brings_gemm_kernels:
            check_blocks(deployment.model, deployment.strategy)
