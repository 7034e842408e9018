"""Microbenchmarks, one function per kernel: a lab and sizes in, a row of the table of operators out.

What PyTorch itself runs needs torch alone; `vllm` has the kernels of an installed vLLM, since those are what its
engine runs. A kernel that a card or a version lacks raises, and is skipped with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Row = dict[str, Any]
Kernel = Callable[..., Row]

KERNELS = {
    "gemm": "gemms",
    "gemm_fp8": "gemms",
    "gemm_int8": "gemms",
    "gemm_batched": "gemms",
    "experts": "gemms",
    "attention_forward": "attention",
    "attention_decode": "attention",
    "stream": "streams",
    "embedding": "streams",
    "sampling": "streams",
    "host_copy": "host",
    "launch": "host",
    "host_loop": "host",
    "sustained": "sustained",
    "collective": "collectives",
    "vllm_gemm_fp8": "vllm",
    "vllm_attention": "vllm",
    "vllm_experts": "vllm",
    "vllm_stream": "vllm",
}
"""Each kernel and the module of this package that runs it."""


def kernel(name: str) -> Kernel:
    found: Kernel = getattr(import_module(f"{__name__}.{KERNELS[name]}"), name)
    return found
