# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton kernels that gather rows of a table which may lie in pinned host memory, and is read over the link."""

import triton
import triton.language as tl


@triton.jit
def gather(
    table,
    index,
    out,
    count,
    width,
    programs,
    rounds,
    ALIGNED: tl.constexpr,
    LINE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out [count, width] = rows index [count] int64 of table [nodes, width]; a program takes ROWS of them each round.

    With ALIGNED, threads are shifted so that a warp's reads begin on multiples of LINE values, wherever a row begins;
    BLOCK is then at least width + LINE - 1.
    """
    first = tl.program_id(0).to(tl.int64) * ROWS
    for turn in range(rounds):
        rows = first + turn * programs * ROWS + tl.arange(0, ROWS)[:, None]
        starts = tl.load(index + rows, mask=rows < count, other=0) * width
        at = tl.arange(0, BLOCK)[None, :]
        if ALIGNED:
            at = at - (starts % LINE).to(tl.int32)
        there = (rows < count) & (at >= 0) & (at < width)
        values = tl.load(table + starts + at, mask=there, other=0.0)
        tl.store(out + rows * width + at, values, mask=there)
