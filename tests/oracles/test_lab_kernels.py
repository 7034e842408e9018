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

EVEN = ("n", "groups")
def build(kernel, types, warps=4, stages=1, **constants):
    names = kernel.arg_names
    signature = dict(zip(names, types)) | {name: "constexpr" for name in constants}
    even = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types)
            if kind.startswith("*") or names[i] in EVEN}
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

HOST_ROWS = """
import torch
from gnomon.lab.host_table import Programs, read_rows
generator = torch.Generator().manual_seed(1)
for width in (1, 100, 129, 256):
    table = torch.randn(300, width, generator=generator)
    index = torch.randint(0, 300, (41,), generator=generator)
    for aligned in (False, True):
        for programs in (Programs(1), Programs(7), Programs(100), Programs(3, rows=8), Programs(100, rows=4)):
            out = torch.full((41, width), torch.nan)
            assert torch.equal(read_rows(table, index, out, programs, aligned=aligned), table[index])
"""
HOST_ROWS_BUILT = (
    BUILD
    + """
from gnomon.lab.host_table import block_of
from gnomon.lab.kernels.host_rows import gather
for width, aligned, rows, warps in ((602, True, 1, 4), (129, True, 1, 4), (129, False, 1, 4), (602, True, 8, 32)):
    made = build(gather, ["*fp32", "*i64", "*fp32"] + ["i32"] * 4, warps,
                 ALIGNED=aligned, LINE=32, ROWS=rows, BLOCK=block_of(width, aligned))
    # A warp's lanes read neighbours, one value each: a request is a line of 128 bytes.
    assert "ld.global.b32" in made.asm["ptx"] and "ld.global.v" not in made.asm["ptx"]
    assert "ld.local" not in made.asm["ptx"]
"""
)

CHOSEN = """
import torch
from gnomon.lab.bench import Bench
from gnomon.lab.experiments import direct3d_s2 as sparse
bench = Bench(torch, "cpu", lambda _: None)
voxels = sparse.drawn(bench, 4, 1024, torch.float16)
blocks = voxels.chosen()
truth = torch.cat([voxels.definition(block, blocks, full=False) for block in range(16)], 1)
for pack, tokens_first in ((1, True), (2, False)):
    out = voxels.compressed().contiguous()
    out = out.transpose(0, 1).contiguous().transpose(0, 1) if tokens_first else out
    found = voxels.attend(blocks, out, pack, 4).double()
    assert (found - truth).abs().max() < 4e-3 * truth.abs().max()
"""
CHOSEN_BUILT = (
    BUILD
    + """
from gnomon.lab.kernels.chosen_blocks import attend
for pack, warps in ((1, 4), (2, 4), (2, 8)):
    types = ["*bf16", "*bf16", "*bf16", "*i32", "*fp32", "*bf16"] + ["i32"] * 3 + ["fp32"]
    made = build(attend, types, warps, 3, GROUP=8, PACK=pack, COUNT=8, D=64, BLOCK=64)
    assert "wgmma" in made.asm["ptx"] and "ld.local" not in made.asm["ptx"]
    assert made.metadata.shared <= 227 * 1024
"""
)

BINNED = """
import torch
from functools import partial
from gnomon.lab.bench import Bench
from gnomon.lab.experiments import onesweep as sweep
from gnomon.lab.kernels import binning
bench = Bench(torch, "cpu", lambda _: None)
two, one = (sweep.KeyTile(1, 4), sweep.KeyTile(4, 4)), (sweep.KeyTile(1, 4, 4), sweep.KeyTile(4, 4, 2))
for size, contents in ((5001, sweep.SKEWED), (300, sweep.UNIFORM)):
    task = sweep._drawn(bench, size, contents)
    task.keys[: size // 2] &= ~15
    starts, truth = task.starts(), task.truth()
    for move in (partial(task.counted, tile) for tile in two):
        assert torch.equal(move(task.keys, task.out.fill_(-1), 0), truth)
    for move in (partial(task.swept, tile, starts) for tile in one):
        assert torch.equal(move(task.keys, task.out.fill_(-1), 0), truth)
    ordered = torch.sort(task.keys).values
    assert torch.equal(task.sorted_once_counted(sweep.KeyTile(16, 4, 64)), ordered)
    assert torch.equal(task.sorted(partial(task.counted, sweep.KeyTile(16, 4))), ordered)

# The interpreter runs tiles in order, so each finds a sum at once; here one finds counts, and a sum behind them.
rows, last = 1, 21
task = sweep._drawn(bench, 22 * 128, sweep.UNIFORM)
digits = (task.keys & 15).view(22, 128)
counts = torch.stack([torch.bincount(row, minlength=16) for row in digits]).to(torch.int32)
for sums in ((0, 0), (3, 12), (12, 20), (20, 0)):
    for window in (2, 4, 16, 32):
        status = torch.zeros(22 * 16 + 1, dtype=torch.int32)
        left = status[:-1].view(22, 16)
        for odd, summed in enumerate(sums):
            left[:last, odd::2] = counts[:last, odd::2] + (1 << 29)
            left[summed, odd::2] = counts[: summed + 1, odd::2].sum(0) + (1 << 30)
            left[:summed, odd::2] = (1 << 29) + 7  # behind the sum: not to be added
        status[-1] = last
        starts, truth = task.starts()[0], task.truth()
        out = torch.full_like(task.keys, -1)
        scratch = torch.empty(22 * 16, dtype=torch.int32)
        binning.one_pass[(1,)](task.keys, out, starts, status, scratch, status[-1:], 22 * 128, 0, ROWS=1, WINDOW=window)
        assert torch.equal(left[last], counts.sum(0) + (1 << 30))
        assert int((out >= 0).sum()) == 128 and torch.equal(out[out >= 0], truth[out >= 0])
"""
BINNED_BUILT = (
    BUILD
    + """
from gnomon.lab.experiments import onesweep as sweep
from gnomon.lab.kernels import binning
for tile in sweep.ONE_TILES:
    made = build(binning.one_pass, ["*i32"] * 6 + ["i32"] * 2, tile.warps, ROWS=tile.rows, WINDOW=tile.window)
    assert "ld.volatile.global" in made.asm["ptx"] and made.metadata.shared <= 227 * 1024
build(binning.scatter, ["*i32"] * 4 + ["i32"] * 3, 8, ROWS=32)
build(binning.count, ["*i32"] * 2 + ["i32"] * 3, 8, BLOCK=4096)
build(binning.totals, ["*i32"] * 2 + ["i32"], 8, DIGITS=8, BLOCK=4096, REPEATS=8)
"""
)

PERCEPTRON = """
import torch
from gnomon.lab.bench import Bench
from gnomon.lab.experiments import fused_mlp_intel as fused
bench = Bench(torch, "cpu", lambda _: None)
for layers, width, batch in ((12, 64, 300), (2, 16, 70), (5, 32, 64)):
    task = fused._drawn(bench, {"layers": layers, "width": width}, batch, torch.float16)
    truth = task.truth()
    assert (task.fused(64, 4).double() - truth).abs().max() < 5e-3 * truth.square().mean().sqrt()
"""
PERCEPTRON_BUILT = (
    BUILD
    + """
from gnomon.lab.experiments import fused_mlp_intel as fused
from gnomon.lab.kernels.perceptron import layers
for rows, warps in fused.TILES:
    made = build(layers, ["*bf16"] * 3 + ["i32"], warps, LAYERS=12, WIDTH=64, ROWS=rows, STAGES=fused.STAGES)
    assert "wgmma" in made.asm["ptx"] and "cp.async" in made.asm["ptx"]
"""
)

DISSECTED = """
import torch
from gnomon.lab.bench import Bench
from gnomon.lab.experiments import hopper_dissection as hopper
bench = Bench(torch, "cpu", lambda _: None)
order = (torch.randperm(64) * 32).int()
following = torch.zeros(2048, dtype=torch.int32)
following[order.long()] = order.roll(-1)
chain = hopper._Chain(following, order, 100)
starts = [chain.start(turn) for turn in range(6)]
for turn in range(6):
    assert int(chain.kernel(starts, turn)) == chain.end(turn) != starts[turn]
for form in (hopper.Form(16, 32, 16, 2, 4), hopper.Form(32, 16, 16, 2, 4)):
    a, b = (hopper._whole(bench, *shape, seed=1).half() for shape in ((form.m, form.k), (form.k, form.n)))
    found = hopper.multiplied(form, (a, b), torch.empty(3, form.m, form.n), 7)
    assert torch.equal(found, (a.float() @ b.float() * 7).expand(3, -1, -1))
for form in (hopper.Form(16, 32, 16, 2, 4), hopper.Form(64, 32, 32, 2, 4)):
    a, b = (hopper._whole(bench, 192, 192, seed=seed).half() for seed in (1, 2))
    for stages in (1, 4):
        found = hopper.tiled(form, stages, (a, b), torch.full_like(a, -1))
        assert torch.equal(found, (a.float() @ b.float().T).half())
"""
DISSECTED_BUILT = (
    BUILD
    + """
from gnomon.lab.experiments import hopper_dissection as hopper
from gnomon.lab.kernels import dissected
for kind, form in hopper.FORMS.items():
    sides = {"M": form.m, "N": form.n, "K": form.k}
    made = build(dissected.multiplied, ["*bf16", "*bf16", "*fp32", "i32"], form.warps, **sides)
    ptx = made.asm["ptx"]
    assert made.metadata.shared * form.programs <= 227 * 1024
    assert ("wgmma" in ptx, "mma.sync" in ptx) == (kind == hopper.WGMMA, kind == hopper.MMA)
for form, _ in hopper.TILED.values():
    sides = {"M": form.m, "N": form.n, "K": form.k}
    for stages in (1, 4):
        ptx = build(dissected.tiled, ["*bf16"] * 3 + ["i32"], form.warps, **sides, STAGES=stages).asm["ptx"]
        assert "wgmma" in ptx and ("cp.async" in ptx) == (stages > 1)
ptx = build(dissected.chase, ["*i32", "*i32", "i32", "i32"], 1).asm["ptx"]
assert "ld.global.b32" in ptx and "bar.sync" not in ptx
"""
)

PACKED = """
import torch
from gnomon.lab.bench import Bench
from gnomon.lab.experiments import tempi
bench = Bench(torch, "cpu", lambda _: None)
layouts = (tempi.Layout(1, 1500, 1, 1, 512, 1500 * 512), tempi.Layout(1, 40, 32, 8, 64, 40 * 64),
           tempi.Layout(9, 7, 3, 8, 15, 15 * 20))
for layout in layouts:
    task = tempi._drawn(bench, layout)
    grid = task.source[: layout.span].view(layout.planes, -1)[:, : layout.rows * layout.row_stride]
    blocks = grid.unflatten(1, (layout.rows, layout.row_stride))[:, :, : layout.words]
    assert torch.equal(task.truth(), blocks.flatten())
    for call in (task.one, task.strided, task.loop):
        task.out.zero_()
        assert torch.equal(call(), blocks.flatten())
        assert int((task.out == 0).sum()) == 0
# A block of 24 bytes at a multiple of 16 touches one sector or two.
assert layouts[2].read_bytes == 63 * 48 and layouts[0].read_bytes == 1500 * 32 and layouts[1].read_bytes == 40 * 256
"""
PACKED_BUILT = (
    BUILD
    + """
from gnomon.lab.kernels.packing import packed
for words, kind in ((1, "*u8"), (3, "*i64"), (32, "*i64")):
    build(packed, [kind, kind, "i32", "i32", "i32", "i32"], WORDS=words, BLOCK=1024)
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
EVEN = ("width",)
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


def test_rows_of_a_host_table_by_the_interpreter() -> None:
    run(HOST_ROWS, TRITON_INTERPRET="1")


def test_the_kernel_that_reads_host_rows_is_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(HOST_ROWS_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_attention_over_chosen_blocks_by_the_interpreter() -> None:
    run(CHOSEN, TRITON_INTERPRET="1")


def test_attention_over_chosen_blocks_is_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(CHOSEN_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_keys_move_to_their_bins_by_the_interpreter() -> None:
    run(BINNED, TRITON_INTERPRET="1")


def test_the_kernels_of_bins_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(BINNED_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_a_fused_perceptron_by_the_interpreter() -> None:
    run(PERCEPTRON, TRITON_INTERPRET="1")


def test_the_fused_perceptron_is_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(PERCEPTRON_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_kernels_that_time_one_thing_by_the_interpreter() -> None:
    run(DISSECTED, TRITON_INTERPRET="1")


def test_kernels_that_time_one_thing_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(DISSECTED_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_strided_objects_are_packed_by_the_interpreter() -> None:
    run(PACKED, TRITON_INTERPRET="1")


def test_the_packing_kernel_is_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(PACKED_BUILT, TRITON_CACHE_DIR=str(tmp_path))


def test_tokens_to_slots_and_back_by_the_interpreter() -> None:
    run(DISPATCH, TRITON_INTERPRET="1")


def test_kernels_of_dispatch_are_built_for_hopper(tmp_path: os.PathLike[str]) -> None:
    run(DISPATCH_BUILT, TRITON_CACHE_DIR=str(tmp_path))
