# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton GEMM kernels with four-bit weights. Imported only where Triton is.

A group of 128 rows of the weights, for one column, is 16 words of 32 bits. The lower half of word `j` holds, four
bits each, the codes of rows `2j`, `2j + 32`, `2j + 64` and `2j + 96`, the upper half those of the rows after them. So
one shift and one mask leave two neighbours in the halves of a word, where the tensor cores want them, and 16 words
give 32 consecutive rows: no value has to change its place. A code is set into the mantissa of a number whose last bit
counts one (128 in bf16, 1024 in fp16), which needs no conversion; what that adds is taken off by the sum of the
inputs.
"""

import triton
import triton.language as tl

WORDS = tl.constexpr(16)
PARTS = tl.constexpr(4)
DEPTH = tl.constexpr(32)
GROUP = tl.constexpr(128)
BOTH = tl.constexpr(0x00010001)
"""What a half of a word is multiplied by to stand in both."""


@triton.jit
def _pairs(codes, part, MAGIC: tl.constexpr, dtype: tl.constexpr):
    """Rows `2j` and `2j + 1` of a part, from its words `j`."""
    bits = ((codes >> (4 * part)) & (0xF * BOTH)) | (MAGIC * BOTH)
    low = bits.to(tl.int16).to(dtype, bitcast=True)
    high = (bits >> 16).to(tl.int16).to(dtype, bitcast=True)
    return tl.join(low, high)


@triton.jit(do_not_specialize=["m", "groups_each"])
def gemm(
    x,
    packed,
    scales,
    zeros,
    out,
    m,
    n,
    groups,
    groups_each,
    MAGIC: tl.constexpr,
    OFFSET: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """x [m, 128 groups] times weights [128 groups, n], the groups shared out over the last axis of the grid.

    packed [16 groups, n] int32, scales and zeros [groups, n]; out [splits, m, n] in fp32, one summand each.
    """
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    words = tl.arange(0, WORDS)
    row_ok = rows < m
    column_ok = columns < n
    first = split * groups_each
    last = tl.minimum(first + groups_each, groups)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for group in range(first, last):
        codes = tl.load(
            packed + (words + group * WORDS)[:, None] * n + columns[None, :], mask=column_ok[None, :], other=0
        )
        scale = tl.load(scales + group * n + columns, mask=column_ok, other=0.0).to(tl.float32)
        zero = tl.load(zeros + group * n + columns, mask=column_ok, other=0).to(tl.float32)
        part_sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        inputs = tl.zeros((BLOCK_M, DEPTH), dtype=tl.float32)
        for part in tl.static_range(PARTS):
            at = tl.arange(0, DEPTH) + (group * GROUP + part * DEPTH)
            values = tl.load(x + rows[:, None] * (groups * GROUP) + at[None, :], mask=row_ok[:, None], other=0.0)
            weights = _pairs(codes, part, MAGIC, x.dtype.element_ty).permute(0, 2, 1).reshape(DEPTH, BLOCK_N)
            part_sum = tl.dot(values, weights, acc=part_sum)
            inputs += values.to(tl.float32)
        added = tl.sum(inputs, axis=1)
        total += (part_sum - added[:, None] * (zero + OFFSET)[None, :]) * scale[None, :]
    place = out + split * m * n + rows[:, None] * n + columns[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=row_ok[:, None] & column_ok[None, :])


@triton.jit(do_not_specialize=["m", "groups_each"])
def turned(
    x,
    packed,
    scales,
    zeros,
    out,
    m,
    n,
    groups,
    groups_each,
    MAGIC: tl.constexpr,
    OFFSET: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """As `gemm`, with the weights as the first operand, which Hopper's tensor cores read from registers."""
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    words = tl.arange(0, WORDS)
    row_ok = rows < m
    column_ok = columns < n
    first = split * groups_each
    last = tl.minimum(first + groups_each, groups)
    total = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for group in range(first, last):
        codes = tl.load(
            packed + (words + group * WORDS)[None, :] * n + columns[:, None], mask=column_ok[:, None], other=0
        )
        scale = tl.load(scales + group * n + columns, mask=column_ok, other=0.0).to(tl.float32)
        zero = tl.load(zeros + group * n + columns, mask=column_ok, other=0).to(tl.float32)
        part_sum = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
        inputs = tl.zeros((DEPTH, BLOCK_M), dtype=tl.float32)
        for part in tl.static_range(PARTS):
            at = tl.arange(0, DEPTH) + (group * GROUP + part * DEPTH)
            values = tl.load(x + rows[None, :] * (groups * GROUP) + at[:, None], mask=row_ok[None, :], other=0.0)
            weights = _pairs(codes, part, MAGIC, x.dtype.element_ty).reshape(BLOCK_N, DEPTH)
            part_sum = tl.dot(weights, values, acc=part_sum)
            inputs += values.to(tl.float32)
        added = tl.sum(inputs, axis=0)
        total += (part_sum - (zero + OFFSET)[:, None] * added[None, :]) * scale[:, None]
    place = out + split * m * n + rows[None, :] * n + columns[:, None]
    tl.store(place, total.to(out.dtype.element_ty), mask=row_ok[None, :] & column_ok[:, None])


@triton.jit(do_not_specialize=["splits"])
def summed(parts, out, size, splits, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """out [size] is the sum of parts [splits, size], up to SPLITS of them, in a fixed order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    split = tl.arange(0, SPLITS)
    there = (split < splits)[:, None] & (at < size)[None, :]
    found = tl.load(parts + split[:, None] * size + at[None, :], mask=there, other=0.0)
    tl.store(out + at, tl.sum(found, axis=0).to(out.dtype.element_ty), mask=at < size)


@triton.jit
def unfolded(packed, scales, zeros, out, n, BLOCK_N: tl.constexpr):
    """out [128 groups, n]: the weights in 16 bits, one group and a run of columns a program."""
    group = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    words = tl.arange(0, WORDS)
    inside = columns < n
    codes = tl.load(packed + (words + group * WORDS)[:, None] * n + columns[None, :], mask=inside[None, :], other=0)
    scale = tl.load(scales + group * n + columns, mask=inside, other=0.0).to(tl.float32)
    zero = tl.load(zeros + group * n + columns, mask=inside, other=0).to(tl.float32)
    for part in tl.static_range(PARTS):
        for half in tl.static_range(2):
            values = ((codes >> (4 * part + 16 * half)) & 0xF).to(tl.float32) - zero[None, :]
            at = (2 * words + (group * GROUP + part * DEPTH + half))[:, None] * n + columns[None, :]
            tl.store(out + at, (values * scale[None, :]).to(out.dtype.element_ty), mask=inside[None, :])
