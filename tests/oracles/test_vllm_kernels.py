"""The order and the conditions of vLLM's kernels of experts, run from its own source without a GPU.

The classes need CUDA to be imported; their conditions are functions of the platform and of names, which are taken out
of the source and run with a platform that says what a chip would.
"""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.engines.test_kernels import CHOICES

from gnomon import catalog
from gnomon.engines.vllm.kernels import DEEP_GEMM, FLASHINFER, MARLIN, TRITON, TRTLLM
from gnomon.engines.vllm.platforms import capability

pytestmark = pytest.mark.oracle

CLASSES = {
    TRTLLM: {
        "bf16": ("trtllm_bf16_moe", "TrtLlmBf16Experts"),
        "fp8": ("trtllm_fp8_moe", "TrtLlmFp8ExpertsMonolithic"),
        "fp8-blocks": ("trtllm_fp8_moe", "TrtLlmFp8ExpertsMonolithic"),
        "nvfp4": ("trtllm_nvfp4_moe", "TrtLlmNvFp4ExpertsBase"),
        "mxfp4-weights": ("trtllm_mxfp4_moe", "TrtLlmMxfp4ExpertsBase"),
        "mxfp4-mxfp8": ("trtllm_mxfp4_moe", "TrtLlmMxfp4ExpertsBase"),
    },
    FLASHINFER: {"": ("flashinfer_cutlass_moe", "FlashInferExperts")},
    TRITON: {"": ("triton_moe", "TritonExperts"), "mxfp4-weights": ("gpt_oss_triton_kernels_moe", "OAITritonExperts")},
    MARLIN: {"": ("marlin_moe", "MarlinExperts")},
}
DEVICES = {"TrtLlmFp8ExpertsMonolithic": "TrtLlmFp8ExpertsBase", "OAITritonExperts": "BaseOAITritonExperts"}
"""Classes whose device is their parent's."""
ORACLES = {
    "bf16": ("unquantized", ("FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "TRITON")),
    "fp8": ("fp8", ("FLASHINFER_TRTLLM", "FLASHINFER_CUTLASS", "DEEPGEMM", "VLLM_CUTLASS", "TRITON", "MARLIN")),
    "nvfp4": ("nvfp4", ("FLASHINFER_TRTLLM", "FLASHINFER_CUTEDSL", "FLASHINFER_CUTLASS", "VLLM_CUTLASS", "MARLIN")),
    "mxfp4": (
        "mxfp4",
        ("FLASHINFER_TRTLLM_MXFP4_BF16", "TRITON", "FLASHINFER_CUTLASS_MXFP4_BF16", "MARLIN"),
    ),
}
SCHEMES = {
    "bf16": (None, None),
    "fp8": ("kFp8StaticTensorSym", "kFp8DynamicTensorSym"),
    "fp8 static": ("kFp8StaticTensorSym", "kFp8StaticTensorSym"),
    "fp8-blocks": ("kFp8Static128BlockSym", "kFp8Dynamic128Sym"),
    "nvfp4": ("kNvfp4Static", "kNvfp4Dynamic"),
    "mxfp4-weights": ("kMxfp4Static", None),
    "mxfp4-mxfp8": ("kMxfp4Static", "kMxfp8Dynamic"),
    "int4-weights": ("kInt4Static", None),
}


@cache
def _folder() -> Path:
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("vLLM is not installed; run `make test-oracles`")
    return Path(next(iter(spec.submodule_search_locations))) / "model_executor/layers/fused_moe"


class Platform:
    """What vLLM's `current_platform` would answer on a chip."""

    def __init__(self, number: tuple[int, int]) -> None:
        self.number = number

    def is_cuda(self) -> bool:
        return True

    is_cuda_alike = is_cuda

    def is_rocm(self) -> bool:
        return False

    is_xpu = is_rocm

    def supports_fp8(self) -> bool:
        return self.number >= (8, 9)

    def is_device_capability(self, wanted: Any) -> bool:
        return self._pair(wanted) == self.number

    def has_device_capability(self, wanted: Any) -> bool:
        return self.number >= self._pair(wanted)

    def is_device_capability_family(self, wanted: int) -> bool:
        return self.number[0] == wanted // 10

    def get_device_capability(self) -> Any:
        return type("Capability", (), {"major": self.number[0], "minor": self.number[1]})()

    @staticmethod
    def _pair(wanted: Any) -> tuple[int, int]:
        return wanted if isinstance(wanted, tuple) else divmod(wanted, 10)


class Names(dict[str, Any]):
    """Constants stand for themselves, and what a module asks of its environment is there."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("has_"):
            return lambda: True
        if name.startswith("k") and name[1].isupper():
            return name
        raise KeyError(name)


def ask(file: str, owner: str, method: str, number: tuple[int, int], *given: Any) -> bool:
    source = (_folder() / "experts" / f"{file}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    while True:
        found = [one for one in classes[owner].body if isinstance(one, ast.FunctionDef) and one.name == method]
        if found:
            break
        owner = next(base.id for base in classes[owner].bases if isinstance(base, ast.Name) and base.id in classes)
    names = Names(current_platform=Platform(number))
    helpers = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.args.args]
    for node in (*helpers, found[0]):
        node.decorator_list, node.returns = [], None
        for argument in node.args.args:
            argument.annotation = None
        exec(compile(textwrap.dedent(ast.unparse(node)), file, "exec"), names)
    return bool(names[method](*given))


@pytest.mark.parametrize("name", ORACLES)
def test_the_order_of_kernels(name: str) -> None:
    file, order = ORACLES[name]
    source = (_folder() / "oracle" / f"{file}.py").read_text(encoding="utf-8")
    lists = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.List)]
    named = [[one.attr for one in node.elts if isinstance(one, ast.Attribute)] for node in lists]
    assert any([one for one in found if one in order] == list(order) for found in named)


@pytest.mark.parametrize(("chip", "dtype", "ep", "static", "kernel"), CHOICES)
def test_what_runs_where(chip: str, dtype: str, ep: int, static: bool, kernel: str) -> None:
    """The kernel we say is eligible by vLLM's own conditions."""
    number = capability(catalog.chip(chip))
    file, owner = CLASSES[kernel].get(dtype) or CLASSES[kernel][""]
    assert ask(file, owner, "_supports_current_device", number)
    if (kernel, dtype) != (MARLIN, "int4-weights"):
        assert ask(file, owner, "_supports_quant_scheme", number, *SCHEMES["fp8 static" if static else dtype])


def test_what_does_not() -> None:
    """FlashInfer's experts are not eligible for scales found each step, nor TensorRT-LLM's on Hopper or on cards."""
    dynamic, file = SCHEMES["fp8"], CLASSES[FLASHINFER][""]
    for number in ((9, 0), (10, 0), (12, 0)):
        assert not ask(*file, "_supports_quant_scheme", number, *dynamic)
    assert not ask(*CLASSES[TRTLLM]["fp8"], "_supports_quant_scheme", (10, 0), *dynamic)
    for number in ((9, 0), (12, 0)):
        assert not any(ask(*one, "_supports_current_device", number) for one in CLASSES[TRTLLM].values())
    assert not ask(*file, "_supports_quant_scheme", (10, 0), *SCHEMES["fp8-blocks"])
    assert DEEP_GEMM not in CLASSES
