# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""A Triton kernel for one row times weights of one to eight bits.

Codes are stored as pieces of 4, 2 and 1 bits, each in words of its own: 32 / bits codes of consecutive rows share a
word. An input times a code is the sum of the input times each of its pieces, so no code is put together. A piece is not
shifted down: its bits are set where they are into the mantissa of 2^23, and the input is scaled by as much.
"""

import triton
import triton.language as tl

GROUP = tl.constexpr(128)
EXPONENT = tl.constexpr(0x4B000000)
OFFSET = tl.constexpr(8388608.0)


@triton.jit
def _piece(x, words, group, n, columns, there, total, BITS: tl.constexpr, SHIFT: tl.constexpr):
    """Add a group's inputs times one piece of its codes."""
    PER: tl.constexpr = 32 // BITS
    WORDS: tl.constexpr = GROUP // PER
    index = tl.arange(0, WORDS)
    packed = tl.load(words + (index + group * WORDS)[:, None] * n + columns[None, :], mask=there[None, :], other=0)
    upper = packed >> 16
    added = tl.zeros((WORDS, columns.shape[0]), dtype=tl.float32)
    for i in tl.static_range(PER):
        word = packed if i < PER // 2 else upper
        mantissa = (word & (((1 << BITS) - 1) << (BITS * (i % (PER // 2))))) | EXPONENT
        scale = 1.0 / (1 << (BITS * (i % (PER // 2))))
        values = tl.load(x + group * GROUP + index * PER + i).to(tl.float32) * scale
        added += (mantissa.to(tl.float32, bitcast=True) - OFFSET) * values[:, None]
    return total + (1 << SHIFT) * tl.sum(added, axis=0)


@triton.jit(do_not_specialize=["groups_each"])
def vector(
    x,
    high,
    middle,
    low,
    scales,
    out,
    n,
    groups,
    groups_each,
    HIGH: tl.constexpr,
    MIDDLE: tl.constexpr,
    LOW: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """x [128 groups] times weights [128 groups, n]; scales [groups, n]; out [splits, n] in fp32, one summand each.

    HIGH, MIDDLE and LOW are the bits of the pieces, 0 for none; codes count from half of their range.
    """
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = columns < n
    first = tl.program_id(1) * groups_each
    last = tl.minimum(first + groups_each, groups)
    total = tl.zeros((BLOCK_N,), dtype=tl.float32)
    rows = tl.arange(0, GROUP)
    for group in range(first, last):
        inputs = tl.sum(tl.load(x + group * GROUP + rows).to(tl.float32), axis=0)
        partial = tl.zeros((BLOCK_N,), dtype=tl.float32)
        if HIGH > 0:
            partial = _piece(x, high, group, n, columns, there, partial, HIGH, MIDDLE + LOW)
        if MIDDLE > 0:
            partial = _piece(x, middle, group, n, columns, there, partial, MIDDLE, LOW)
        if LOW > 0:
            partial = _piece(x, low, group, n, columns, there, partial, LOW, 0)
        scale = tl.load(scales + group * n + columns, mask=there, other=0.0).to(tl.float32)
        total += (partial - inputs * (1 << (HIGH + MIDDLE + LOW - 1))) * scale
    tl.store(out + tl.program_id(1) * n + columns, total, mask=there)
