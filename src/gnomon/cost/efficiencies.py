"""Formats that no profile of ours has a fit for: how much slower their kernels are than those it has.

A relative efficiency scales the coefficients of a family that was fitted (16-bit or eight-bit GEMMs) by what published
tables show for the same kernels: shares of its arithmetic and memory rates, and microseconds on top of its launch.
All are from AIConfigurator 0.12's operator tables, fitted to whole tables and checked with a quarter of the shapes
held out, or on the GB200 for those of Blackwell's experts, which are of the engine's own version alone: releases
before it ran other kernels. `spread` is the error that was left. Rows are short bursts. Figures of an
architecture without a table of its own are estimates with the widest spread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

TABLES = "AIConfigurator 0.12"


@dataclass(frozen=True, slots=True)
class RelativeEfficiency:
    """Kernels of one format on one architecture, relative to those of `base`."""

    base: str
    rate: float
    memory: float
    launch_us: float
    spread: float
    source: str
    measured: bool = True
    """Whether a table of that architecture shows it."""
    same_kernel: bool = False
    """Whether it is the kernel of `base` with other bytes: what bounds that one bounds this."""


_WIDE = f"{TABLES}, TensorRT-LLM's weight-only GEMMs on an A100: off by 11% at the median"
_MARLIN = "Marlin multiplies with Ampere's instructions, at 0.5 to 0.66 of Hopper's in vLLM's experts; estimated"
_TURNED = f"{TABLES}, vLLM's Marlin experts on an H100: off by 12%, by 29% on held-out shapes"
_SLOW = f"{TABLES}, vLLM 0.24's Marlin experts on a B200: off by 10%, by 16% on a GB200"
_AMPERE = f"{TABLES}, SGLang's Marlin experts on an A100: off by 11%"

ANY = ""
"""An architecture that is not named."""
_GEMMS = {
    "Ampere": RelativeEfficiency("bf16", 1.0, 1.0, 8.1, 0.25, _WIDE),
    "Hopper": RelativeEfficiency("bf16", 0.6, 1.0, 8.1, 0.35, _MARLIN),
    "Blackwell": RelativeEfficiency("bf16", 0.35, 0.8, 8.1, 0.5, _MARLIN),
    ANY: RelativeEfficiency("bf16", 1.0, 1.0, 8.1, 0.4, _WIDE),
}
_FP32 = (
    "cuBLAS in fp32 on an RTX A6000: 23.2 of 38.7 TFLOP/s (siboehm.com, How to Optimize a CUDA Matmul Kernel, 2022); "
    "half of such cards' fp32 units share their ports with integers"
)
_FEW = "as four bits, by their bytes: no table of ours has a kernel for them; estimated"
_SPARSE = (
    "2:4 sparse GEMMs of cuSPARSELt reach 1.3 to 1.85 times dense ones on an A100 (Mishra et al. 2021, "
    "arXiv:2104.08378, recalled), CUTLASS about 1.2 on an H100 (issue 2229 of NVIDIA/cutlass); estimated"
)
_PRUNED = {
    "Hopper": RelativeEfficiency("bf16", 0.6, 0.9, 3.0, 0.35, _SPARSE, measured=False),
    ANY: RelativeEfficiency("bf16", 0.85, 0.9, 3.0, 0.3, _SPARSE, measured=False),
}
_EXPERTS = {
    "Ampere": RelativeEfficiency("bf16", 1.12, 1.2, 0.0, 0.16, _AMPERE),
    "Hopper": RelativeEfficiency("bf16", 0.48, 1.0, 27.0, 0.27, _TURNED),
    "Blackwell": RelativeEfficiency("bf16", 0.31, 0.43, 21.0, 0.25, _SLOW),
    ANY: RelativeEfficiency("bf16", 1.0, 1.0, 10.0, 0.4, _AMPERE),
}
_DEEP = f"{TABLES}, SGLang's block-scaled GEMMs on an H100 and a B200: off by 13%"
_FOUR = f"{TABLES}, vLLM's nvfp4 GEMMs on a B200: off by 9%"
_FOUR_MX = "as nvfp4, with the scales of blocks of 32 among its bytes; no table of ours has it"
_SMOOTH = f"{TABLES}, TensorRT-LLM's int8 GEMMs on an A100: off by 12%"
_GROUPED = f"{TABLES}, vLLM's block-scaled experts: off by 9% on an H100; 0.24's by 11% on a B200 and on a GB200"
_OPEN = f"{TABLES}, vLLM's mxfp4 experts: off by 14% on an H100; 0.24's by 14% on a B200 and on a GB200"
_FOUR_EXPERTS = f"{TABLES}, vLLM 0.24's nvfp4 experts: off by 13% on a B200, by 12% on a GB200"

_ROWS = "as fp8, whose sums are scaled by row afterwards; no table of ours has it"
_MICRO = "as fp8, with the scales of blocks of 32 among its bytes; no table of ours has it"

EFFICIENCIES: dict[tuple[str, str], dict[str, RelativeEfficiency]] = {
    **{("gemm", f"{name}-weights"): _GEMMS for name in ("int4", "int8", "fp8", "mxfp4", "nvfp4")},
    **{("moe", f"{name}-weights"): _EXPERTS for name in ("int4", "int8", "fp8", "nvfp4")},
    **{
        ("gemm", f"int{bits}-weights"): {
            ANY: RelativeEfficiency("int4-weights", 1.0, 1.0, 0.0, 0.3, _FEW, same_kernel=True)
        }
        for bits in (6, 5, 3, 2, 1)
    },
    ("gemm", "bf16-sparse"): _PRUNED,
    **{
        ("gemm", f"{name}-sparse"): {key: replace(one, base=name) for key, one in _PRUNED.items()}
        for name in ("fp8", "int8")
    },
    **{
        ("gemm", f"fp8-{name}"): {ANY: RelativeEfficiency("fp8", 1.0, 1.0, 0.0, 0.25, source)}
        for name, source in (("blocks", _DEEP), ("vectors", _DEEP), ("rows", _ROWS))
    },
    **{(kind, "mxfp8"): {ANY: RelativeEfficiency("fp8", 1.0, 1.0, 0.0, 0.25, _MICRO)} for kind in ("gemm", "moe")},
    ("gemm", "fp32"): {"Ada": RelativeEfficiency("bf16", 0.6, 1.0, 0.0, 0.2, _FP32)},
    ("gemm", "nvfp4"): {ANY: RelativeEfficiency("fp8", 0.86, 0.83, 1.1, 0.19, _FOUR)},
    ("gemm", "mxfp4-mxfp4"): {ANY: RelativeEfficiency("nvfp4", 1.0, 1.0, 0.0, 0.2, _FOUR_MX)},
    ("gemm", "int8"): {
        "Ampere": RelativeEfficiency("bf16", 1.17, 1.0, 4.5, 0.3, _SMOOTH),
        ANY: RelativeEfficiency("fp8", 1.0, 1.0, 0.0, 0.3, "as fast as fp8; not measured"),
    },
    ("moe", "fp8-blocks"): {
        "Hopper": RelativeEfficiency("bf16", 0.52, 1.07, 27.0, 0.17, _GROUPED),
        "Blackwell": RelativeEfficiency("bf16", 0.4, 0.88, 14.3, 0.2, _GROUPED),
        ANY: RelativeEfficiency("bf16", 0.5, 1.0, 27.0, 0.4, _GROUPED),
    },
    ("moe", "mxfp4-weights"): {
        "Hopper": RelativeEfficiency("bf16", 0.66, 0.84, 21.0, 0.26, _OPEN),
        "Blackwell": RelativeEfficiency("bf16", 0.53, 0.5, 6.6, 0.25, _OPEN),
        "Ampere": _EXPERTS["Ampere"],
        ANY: _EXPERTS[ANY],
    },
    ("moe", "nvfp4"): {ANY: RelativeEfficiency("bf16", 0.97, 0.96, 1.2, 0.26, _FOUR_EXPERTS)},
}


CARD = "Blackwell card"
"""Blackwell without HBM (sm_120): it has no other matrix instructions than Marlin's, as Ampere and Ada."""


def efficiency(kind: str, dtype: str, generation: str) -> RelativeEfficiency | None:
    """The relative efficiency of an operator kind in a format; None where profiles have a fit, or nothing is known."""
    found = EFFICIENCIES.get((kind, dtype))
    if found is None:
        return None
    name = "Ampere" if generation == CARD and dtype.endswith("-weights") else generation.partition(" ")[0]
    if name in found:
        return found[name]
    return replace(found[ANY], measured=False) if ANY in found else None
