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
from gnomon.lab.experiments.gptq import EXACT
from gnomon.lab.int4_vector import FAR_MASK, vector
generator = torch.Generator().manual_seed(1)
k, n = 384, 72
weights = torch.randn(n, k, generator=generator)
packed = int4.pack(torch, quantise.nearest(torch, weights, 128, symmetric=False))
exact = int4.weights(torch, packed)
for m in (1, 3, 17, 70):
    x = torch.randn(m, k, generator=generator).to(torch.float16)
    truth = x.float() @ exact
    tried = [int4.Tile(kernel=kernel, columns=columns, splits=splits, warps=4, stages=3)
             for kernel in ("gemm", "turned") for columns in (64, 128) for splits in (1, 2, 3)]
    tried += [int4.Tile(kernel="vector", columns=128, splits=splits, warps=1, words=words)
              for words in (4, 8, 16) for splits in (1, 2, 3) if m == 1 or words == 8]
    for tile in tried:
        found = int4.fused(torch, tile, x, packed)
        assert found.shape == (m, n)
        assert (found.float() - truth).abs().max() < 4e-3 * truth.abs().max(), (m, tile)
    wide = int4.unfolded(torch, x, packed)
    assert (wide.float() - x.float() @ exact.to(torch.float16).float()).abs().max() < 4e-3 * truth.abs().max()

# Without products the interpreter takes bf16 too; the sums before they are rounded.
x, out = torch.randn(1, k, generator=generator).to(torch.bfloat16), torch.empty(1, n)
vector[(1, 1, 1)](x, packed.words, packed.scales, packed.zeros, out, 1, n, 3, 3, FAR_MASK, BLOCK_W=8, BLOCK_N=128)
mixed = (x.double().square() @ exact.double().square()).sqrt()
assert ((out - x.double() @ exact.double()).abs() / mixed).max() < 0.1 * EXACT
"""

BUILT = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from gnomon.lab import int4, int4_kernels as kernels
from gnomon.lab.int4_vector import vector

def build(kernel, types, warps=4, stages=1, **constants):
    names = kernel.arg_names
    signature = dict(zip(names, types)) | {name: "constexpr" for name in constants}
    even = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types)
            if kind.startswith("*") or names[i] in ("n", "groups", "width")}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=even)
    options = {"num_warps": warps, "num_stages": stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)

given = ["*bf16", "*i32", "*bf16", "*u8"]
ints = ["i32"] * 4
for name, tried in (("gemm", int4.GEMM), ("turned", int4.TURNED)):
    for columns, warps, stages in tried:
        for rows in (16, 64):
            made = build(getattr(kernels, name), [*given, "*fp32", *ints], warps, stages,
                         MAGIC=0x4300, OFFSET=128.0, BLOCK_M=rows, BLOCK_N=columns)
            assert "mma" in made.asm["ptx"]
            assert made.metadata.shared <= 227 * 1024
            if name == "turned":
                assert "wgmma" in made.asm["ptx"]
for words, warps in int4.VECTOR:
    for out in ("*fp32", "*bf16"):
        made = build(vector, [*given, out, *ints, "i32"], warps, BLOCK_W=words, BLOCK_N=int4.LANE_COLUMNS * warps)
        assert "ld.global.v4" in made.asm["ptx"]
        assert "bar.sync" not in made.asm["ptx"]
for splits in (2, 33):
    high, wide = int4.sum_tile(splits)
    build(kernels.summed, ["*fp32", "*bf16", "i32", "i32"], SPLITS=high, BLOCK=wide)
build(kernels.unfolded, ["*i32", "*bf16", "*u8", "*bf16", "i32"], BLOCK_N=int4.UNFOLD_BLOCK)
"""

BUILD = BUILT.split("given =")[0]
NARROW = """
import torch
from gnomon.lab import bits
generator = torch.Generator().manual_seed(1)
for count in range(1, 9):
    weights = torch.randn(384, 200, generator=generator)
    codes, scales = bits.rounded(torch, weights, count)
    assert 0 <= int(codes.min()) and int(codes.max()) < 2**count
    packed = bits.pack(torch, codes, scales, count)
    assert torch.equal(bits.unpack(torch, packed), codes)
    x = torch.randn(384, generator=generator).to(torch.bfloat16)
    truth = x.double() @ bits.weights(torch, packed).double()
    for tile in bits.tiles(200, 3, 4)[::3]:
        found = bits.multiply(torch, tile, x, packed).double()
        assert (found - truth).abs().max() < 2**-7 * truth.abs().max(), (count, tile)
"""
NARROW_BUILT = (
    BUILD
    + """
from gnomon.lab.kernels.bits import vector as narrow
types = ["*bf16", "*i32", "*i32", "*i32", "*bf16", "*fp32", "i32", "i32", "i32"]
for pieces, (columns, warps) in (((4, 2, 0), (64, 1)), ((2, 1, 0), (128, 4)), ((4, 4, 0), (256, 4))):
    constants = dict(zip(("HIGH", "MIDDLE", "LOW"), pieces)) | {"BLOCK_N": columns}
    assert "ld.global.v4" in build(narrow, types, warps, **constants).asm["ptx"]
"""
)

FUSED = """
import torch
from gnomon.lab.experiments import the_fused_kernel_library as library
from gnomon.lab.bench import Bench
bench = Bench(torch, "cpu", lambda _: None)
for task in (library._chain(bench, 5000, 7), library._crops(bench, 3)):
    truth = task.truth().flatten()
    found = task.fused().flatten()[: truth.numel()].double()
    assert (found - truth).abs().max() < 1e-5 * truth.abs().max()
"""
FUSED_BUILT = (
    BUILD
    + """
from gnomon.lab.kernels.fused import chain, crops
build(chain, ["*fp32", "*fp32", "i32", "fp32", "i32"], BLOCK=1024)
sizes = {"HEIGHT": 60, "WIDTH": 120, "OUT_HEIGHT": 64, "OUT_WIDTH": 128, "BLOCK": 256}
build(crops, ["*u8", "*i32", "*fp32", "*fp32", "i32", "fp32"], **sizes)
"""
)

RECURRENT = """
import torch
from gnomon.lab.experiments import flashrnn
from gnomon.lab.bench import Bench
bench = Bench(torch, "cpu", lambda _: None)
for batch, heads, dim in ((5, 3, 16), (19, 2, 32)):
    model = flashrnn._drawn(bench, {"batch": batch, "heads": heads, "dim": dim}, 9, torch.float16)
    assert (model.fused(4).double() - model.definition()).abs().max() < 2e-3
"""
RECURRENT_BUILT = (
    BUILD
    + """
from gnomon.lab.kernels.recurrent import lstm
made = build(lstm, ["*bf16", "*bf16", "*bf16", "i32", "i32"], 4, HEADS=12, ROWS=16, DIM=64)
assert "mma" in made.asm["ptx"] and "ld.local" not in made.asm["ptx"]
"""
)

DISPATCH = """
import torch
from gnomon.lab import experts
from gnomon.lab.bench import Bench
bench = Bench(torch, "cpu", lambda _: None)
experts.BLOCK = 64
for tokens, width in ((37, 40), (5, 200)):
    x = torch.randn(tokens, width).to(torch.bfloat16)
    up, down = torch.empty(6, 8, width), torch.empty(6, width, 8)
    layer = experts.Layer(bench, x, up, down, experts.routed(bench, tokens, 6))
    slots, gates = layer.routed.slots, layer.routed.gates
    rows = layer.encode()
    assert torch.equal(rows[slots], x[:, None].expand(-1, 2, -1))
    rows = torch.randn(rows.shape).to(torch.bfloat16)
    truth = (rows[slots].double() * gates.double()[..., None]).sum(1)
    assert ((layer.decode(rows).double() - truth).abs() < 2**-7 * truth.abs() + 1e-6).all()  # it truncates to bf16
"""
DISPATCH_BUILT = (
    BUILD
    + """
from gnomon.lab.kernels.dispatch import decode, encode
made = build(encode, ["*bf16", "*i64", "*bf16", "i32"], CHOICES=2, BLOCK=2048)
assert "ld.global.v4" in made.asm["ptx"]
build(decode, ["*bf16", "*i64", "*bf16", "*bf16", "i32"], CHOICES=2, BLOCK=2048)
"""
)


def run(code: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_products_by_the_interpreter() -> None:
    run(INTERPRETED, TRITON_INTERPRET="1")


def test_kernels_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_products_with_any_bits_by_the_interpreter() -> None:
    run(NARROW, TRITON_INTERPRET="1")


def test_kernels_of_any_bits_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(NARROW_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_fused_operations_by_the_interpreter() -> None:
    run(FUSED, TRITON_INTERPRET="1")


def test_fused_kernels_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(FUSED_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_a_recurrence_by_the_interpreter() -> None:
    run(RECURRENT, TRITON_INTERPRET="1")


def test_the_recurrent_kernel_is_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(RECURRENT_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_tokens_to_slots_and_back_by_the_interpreter() -> None:
    run(DISPATCH, TRITON_INTERPRET="1")


def test_kernels_of_dispatch_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(DISPATCH_BUILT, TRITON_CACHE_DIR=str(tmp_path))
