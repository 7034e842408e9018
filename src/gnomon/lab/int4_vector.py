# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""A Triton kernel that multiplies single rows by four-bit weights in fp32, without tensor cores.

The words are those of `int4_kernels`, and stay with the threads that loaded them: nothing passes shared memory.
"""

import triton
import triton.language as tl

from gnomon.lab.int4_kernels import DEPTH, GROUP, WORDS

# Numbers whose mantissas begin with a code: 16 + code, its last bit at 19, and 256 + code, its last bit at 15. One
# shift serves both, since neighbours in a word are four bits apart.
NEAR = tl.constexpr(0x41800000)
NEAR_OFFSET = tl.constexpr(16.0)
FAR = tl.constexpr(0x43800000)
FAR_OFFSET = tl.constexpr(256.0)
SHIFT = tl.constexpr(15)
FAR_MASK = 0xF << 15


@triton.jit
def _half(pair, upper: tl.constexpr, dtype: tl.constexpr):
    """One of the two 16-bit numbers of a word, in fp32."""
    return (pair >> (16 * upper)).to(tl.int16).to(dtype, bitcast=True).to(tl.float32)


@triton.jit(do_not_specialize=["m", "groups_each", "far_mask"])
def vector(
    x, packed, scales, zeros, out, m, n, groups, groups_each, far_mask, BLOCK_W: tl.constexpr, BLOCK_N: tl.constexpr
):
    """As `gemm`, one row a program, neighbours in the grid taking the same weights.

    BLOCK_W of a group's words are taken at a time. With 128 columns a warp a thread holds all of these for its four
    columns, and sums over them by itself. `far_mask` is FAR_MASK, given as a number that the compiler does not know:
    it would set a constant anew for each use.
    """
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    split = tl.program_id(2)
    words = tl.arange(0, BLOCK_W)[:, None]
    inside = columns < n
    near_mask = far_mask << 4
    first = split * groups_each
    last = tl.minimum(first + groups_each, groups)
    pairs = x.to(tl.pointer_type(tl.int32)) + row * (groups * (GROUP // 2))
    total = tl.zeros((1, BLOCK_N), dtype=tl.float32)
    for piece in range(first * (WORDS // BLOCK_W), last * (WORDS // BLOCK_W)):
        group = piece // (WORDS // BLOCK_W)
        scale = tl.load(scales + group * n + columns, mask=inside, other=0.0).to(tl.float32)
        zero = tl.load(zeros + group * n + columns, mask=inside, other=0).to(tl.float32)
        codes = tl.load(packed + (piece * BLOCK_W + words) * n + columns, mask=inside, other=0)
        place = pairs + group * (GROUP // 2 - WORDS) + piece * BLOCK_W + words
        part_sum = tl.zeros((BLOCK_W, BLOCK_N), dtype=tl.float32)
        for part in tl.static_range(0, GROUP // DEPTH, 2):
            far_pair = tl.load(place + part * WORDS)
            near_pair = tl.load(place + (part + 1) * WORDS)
            for upper in tl.static_range(2):
                if 4 * part + 16 * upper <= SHIFT:
                    moved = codes << (SHIFT - 4 * part - 16 * upper)
                else:
                    moved = codes >> (4 * part + 16 * upper - SHIFT)
                far = _half(far_pair, upper, x.dtype.element_ty)
                near = _half(near_pair, upper, x.dtype.element_ty)
                part_sum += far * ((moved & far_mask) | FAR).to(tl.float32, bitcast=True)
                part_sum += near * ((moved & near_mask) | NEAR).to(tl.float32, bitcast=True)
                # Begun with the first: zeros would have a layout of their own, and every value be loaded twice.
                if part + upper == 0:
                    inputs, added = far + near, far * FAR_OFFSET + near * NEAR_OFFSET
                else:
                    inputs, added = inputs + far + near, added + far * FAR_OFFSET + near * NEAR_OFFSET
        shift = tl.sum(added, axis=0, keep_dims=True) + tl.sum(inputs, axis=0, keep_dims=True) * zero
        total += (tl.sum(part_sum, axis=0, keep_dims=True) - shift) * scale
    tl.store(out + split * m * n + row * n + columns, total.to(out.dtype.element_ty), mask=inside)
