"""Which kernel vLLM runs experts with: by chip, format and ranks, and what `moe_backend` changes."""

from __future__ import annotations

import pytest

import gnomon
from gnomon import catalog
from gnomon.engines.vllm.kernels import (
    DEEP_GEMM,
    FLASHINFER,
    MARLIN,
    ORDER,
    TRITON,
    TRTLLM,
    experts_kernel,
    padded_to,
    published_kernel,
    runs,
)
from gnomon.engines.vllm.platforms import capability
from gnomon.errors import InputError
from gnomon.graph import Experts
from gnomon.load.deployments import replica_of
from gnomon.spec import Batch
from gnomon.spec.questions.parts import ServedQuestion

CHOICES = [
    ("H100", "bf16", 1, False, TRITON),
    ("H100", "fp8", 1, False, TRITON),
    ("H100", "fp8", 1, True, FLASHINFER),
    ("H200", "fp8-blocks", 1, False, TRITON),
    ("H200", "fp8-blocks", 8, False, FLASHINFER),
    ("H200", "mxfp4-weights", 1, False, TRITON),
    ("H200", "nvfp4", 1, False, MARLIN),
    ("B200", "bf16", 1, False, TRTLLM),
    ("B300", "fp8", 1, False, TRITON),
    ("B300", "fp8", 1, True, TRTLLM),
    ("GB200", "fp8-blocks", 8, False, TRTLLM),
    ("B200", "nvfp4", 1, False, TRTLLM),
    ("B200", "mxfp4-mxfp8", 1, False, TRTLLM),
    ("B200", "int4-weights", 1, False, MARLIN),
    ("RTX-PRO-6000-Server", "nvfp4", 1, False, FLASHINFER),
    ("RTX-PRO-6000-Server", "mxfp4-weights", 1, False, MARLIN),
    ("RTX-PRO-6000-Server", "fp8-blocks", 1, False, TRITON),
    ("L40S", "fp8-blocks", 1, False, TRITON),
    ("A100", "fp8", 1, False, MARLIN),
    ("A100", "bf16", 1, False, TRITON),
]
"""As vLLM 0.24's oracles choose them, with FlashInfer and DeepGEMM there (tests/oracles/test_vllm_kernels.py)."""


@pytest.mark.parametrize(("chip", "dtype", "ep", "static", "kernel"), CHOICES)
def test_the_kernel_of_experts(chip: str, dtype: str, ep: int, static: bool, kernel: str) -> None:
    assert experts_kernel(dtype, catalog.chip(chip), ep=ep, static=static) == kernel


def test_what_is_chosen_runs() -> None:
    for chip in catalog.chips():
        if capability(chip) >= (7, 5):
            for dtype in ORDER:
                if dtype not in ("fp8-static", "mxfp4-mxfp8"):
                    assert runs(experts_kernel(dtype, chip), dtype, chip), (chip.name, dtype)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("A100", (8, 0)),
        ("A10", (8, 6)),
        ("B300", (10, 3)),
        ("RTX-5090", (12, 0)),
        ("GB10", (12, 1)),
        ("MI300X", (0, 0)),
    ],
)
def test_compute_capability(name: str, number: tuple[int, int]) -> None:
    assert capability(catalog.chip(name)) == number


def test_names_of_published_kernels() -> None:
    assert published_kernel("vllm_fp8moe_flashinfer_trtllm_trtllmfp8expertsmonolithic") == TRTLLM
    assert published_kernel("vllm_unquantizedfusedmoe_triton_tritonexperts") == TRITON
    assert published_kernel("vllm_compressedtensorswna16marlinmoe_marlin_marlinexperts") == MARLIN
    assert published_kernel("something else") == ""


@pytest.mark.parametrize(
    ("on", "settings", "sizes"),
    [
        ("H100:2", {"moe_backend": MARLIN}, (1536, 3072)),
        ("H100:8", {"moe_backend": MARLIN}, (384, 3072)),
        ("H100:8", {}, (384, 2880)),
        ("B200:4", {"moe_activation": "mxfp8"}, (768, 3072)),
        ("B200:8", {}, (512, 3072)),
    ],
)
def test_kernels_of_mxfp4_compute_on_padded_channels(on: str, settings: dict[str, str], sizes: tuple[int, int]) -> None:
    """gpt-oss has 2,880 hidden channels and as many inner ones, which ranks divide."""
    replica = replica_of(ServedQuestion(model="gpt-oss-120b", on=on, settings=settings), "vllm")
    (op,) = (op for op in replica.engine.graph(replica.deploy()).ops if isinstance(op, Experts))
    shape = op.shape(Batch.decode(4, 100))
    assert (shape["inter"][0], shape["hidden"][0]) == sizes
    assert op.flops(Batch.decode(4, 100))[0] == 2 * 3 * 4 * 4 * 2880 * op.inner
    assert padded_to("fp8-blocks", TRTLLM) == (1, 1)


def experts_s(model: str, on: str, **how: object) -> float:
    found = gnomon.predict(model, on=on, phase="decode", batch=32, context=1024, **how)
    return sum(row.time_s.value for row in found.breakdown if row.op == "ffn.experts")


def test_a_backend_that_is_named_is_priced() -> None:
    plain, marlin = (experts_s("gpt-oss-120b", "H100:2", settings={"moe_backend": name}) for name in ("auto", "marlin"))
    assert marlin != plain
    assert experts_s("gpt-oss-120b", "B200") > experts_s("gpt-oss-120b", "B200", settings={"moe_activation": "mxfp8"})


def test_blocks_of_fp8_run_another_kernel_over_ranks() -> None:
    profile = gnomon.load.profiles.profile_for(catalog.chip("H200"))
    assert f"moe.fp8-blocks+{FLASHINFER}" in profile.families


@pytest.mark.parametrize(
    ("model", "on", "settings"),
    [
        ("gpt-oss-120b", "H100:2", {"moe_activation": "mxfp8"}),
        ("gpt-oss-120b", "H100:2", {"moe_backend": "flashinfer_trtllm"}),
        ("mixtral-8x7b", "A100:4", {"moe_backend": DEEP_GEMM}),
    ],
)
def test_a_backend_that_does_not_run_is_refused(model: str, on: str, settings: dict[str, str]) -> None:
    with pytest.raises(InputError, match="experts do not run"):
        gnomon.predict(model, on=on, phase="decode", settings=settings)
