# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton kernels of products with four-bit weights. Imported only where Triton is.

A group of 128 rows of the weights, for one column, is 16 words of 32 bits: word `j` holds, four bits each, the codes
of rows `j`, `j + 16`, … `j + 112`. So the nibbles `s` of a tile of words are 16 consecutive rows, and no value has to
change its place: each is a product of depth 16. A code is set into the mantissa of a number whose last bit counts
one (128 in bf16, 1024 in fp16), which needs no conversion; what that adds is taken off by the sum of the inputs.
"""

import triton
import triton.language as tl

WORDS = tl.constexpr(16)
PARTS = tl.constexpr(8)
GROUP = tl.constexpr(128)


@triton.jit(do_not_specialize=["m", "groups_each"])
def products(
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
        inputs = tl.zeros((BLOCK_M, WORDS), dtype=tl.float32)
        for part in tl.static_range(PARTS):
            at = words + (group * GROUP + part * WORDS)
            values = tl.load(x + rows[:, None] * (groups * GROUP) + at[None, :], mask=row_ok[:, None], other=0.0)
            bits = ((codes >> (4 * part)) & 0xF) | MAGIC
            weights = bits.to(tl.int16).to(values.dtype, bitcast=True)
            part_sum = tl.dot(values, weights, acc=part_sum)
            inputs += values.to(tl.float32)
        added = tl.sum(inputs, axis=1)
        total += (part_sum - added[:, None] * (zero + OFFSET)[None, :]) * scale[None, :]
    place = out + split * m * n + rows[:, None] * n + columns[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=row_ok[:, None] & column_ok[None, :])


@triton.jit(do_not_specialize=["splits"])
def summed(parts, out, size, splits, BLOCK: tl.constexpr):
    """out [size] is the sum of parts [splits, size], in a fixed order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(splits):
        total += tl.load(parts + split * size + at, mask=inside, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


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
        values = ((codes >> (4 * part)) & 0xF).to(tl.float32) - zero[None, :]
        at = (words + (group * GROUP + part * WORDS))[:, None] * n + columns[None, :]
        tl.store(out + at, (values * scale[None, :]).to(out.dtype.element_ty), mask=inside[None, :])
