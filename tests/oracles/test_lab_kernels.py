"""The lab's Triton kernels in Triton's own interpreter on a CPU, and built for a GPU that is not here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="Triton is not installed; run `make test-oracles`")

pytestmark = pytest.mark.oracle

# Triton reads its mode when it is imported, so each runs in a process of its own. The interpreter's products know
# fp16, not bf16; the kernels take both.
INTERPRETED = """
import torch
from gnomon.lab import int4, quantise
generator = torch.Generator().manual_seed(1)
k, n = 384, 72
weights = torch.randn(n, k, generator=generator)
packed = int4.pack(torch, quantise.nearest(torch, weights, 128, symmetric=False))
exact = int4.weights(torch, packed)
for m in (1, 17, 40, 70):
    x = torch.randn(m, k, generator=generator).to(torch.float16)
    truth = x.float() @ exact
    for splits in (1, 2, 3):
        for columns in (64, 128):
            found = int4.fused(torch, int4.Tile(columns=columns, splits=splits), x, packed)
            assert found.shape == (m, n)
            assert (found.float() - truth).abs().max() < 4e-3 * truth.abs().max(), (m, splits, columns)
    wide = int4.unfolded(torch, x, packed)
    assert (wide.float() - x.float() @ exact.to(torch.float16).float()).abs().max() < 4e-3 * truth.abs().max()
"""

BUILT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from gnomon.lab import int4, int4_kernels as kernels

def build(kernel, types, **constants):
    names = kernel.arg_names
    signature = dict(zip(names, types)) | {name: "constexpr" for name in constants}
    even = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types) if kind.startswith("*")}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=even)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 4})
    assert "mma" in made.asm["ptx"] or kernel is not kernels.products

ints = ["i32"] * 4
for rows in (16, 32, 64):
    for columns in (64, 128):
        for out in ("*fp32", "*bf16"):
            build(kernels.products, ["*bf16", "*i32", "*bf16", "*u8", out, *ints],
                  MAGIC=0x4300, OFFSET=128.0, BLOCK_M=rows, BLOCK_N=columns)
build(kernels.summed, ["*fp32", "*bf16", "i32", "i32"], BLOCK=int4.SUM_BLOCK)
build(kernels.unfolded, ["*i32", "*bf16", "*u8", "*bf16", "i32"], BLOCK_N=int4.UNFOLD_BLOCK)
"""


def run(code: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_products_by_the_interpreter() -> None:
    run(INTERPRETED, TRITON_INTERPRET="1")


def test_kernels_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(BUILT, TRITON_CACHE_DIR=str(tmp_path))
