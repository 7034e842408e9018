# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton kernels for the low-rank terms of many adapters in one batch: a row is multiplied by its own adapter's."""

import triton
import triton.language as tl


@triton.jit
def shrink(
    x,
    down,
    which,
    parts,
    tokens,
    width,
    CHUNK: tl.constexpr,
    RANK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """parts [splits, tokens, RANK] in fp32: x [tokens, width] times the rows of down [adapters, RANK, width].

    which [tokens] int32 has each row's adapter; a program takes CHUNK of the width for one row.
    """
    token = tl.program_id(0)
    split = tl.program_id(1)
    ranks = tl.arange(0, RANK)
    source = down + tl.load(which + token).to(tl.int64) * RANK * width
    found = tl.zeros((RANK,), dtype=tl.float32)
    for start in range(0, CHUNK, BLOCK):
        at = split * CHUNK + start + tl.arange(0, BLOCK)
        there = at < width
        values = tl.load(x + token * width + at, mask=there, other=0.0).to(tl.float32)
        tile = tl.load(source + ranks[:, None] * width + at[None, :], mask=there[None, :], other=0.0)
        found += tl.sum(tile.to(tl.float32) * values[None, :], axis=1)
    tl.store(parts + (split * tokens + token) * RANK + ranks, found)


@triton.jit
def expand(
    parts,
    up,
    which,
    out,
    tokens,
    width,
    SPLITS: tl.constexpr,
    RANK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add to out [tokens, width] the sum of parts [SPLITS, tokens, RANK] times up [adapters, RANK, width]."""
    token = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    ranks = tl.arange(0, RANK)
    source = up + tl.load(which + token).to(tl.int64) * RANK * width
    tile = tl.load(source + ranks[:, None] * width + at[None, :], mask=there[None, :], other=0.0)
    before = tl.load(out + token * width + at, mask=there, other=0.0).to(tl.float32)
    splits = tl.arange(0, SPLITS)
    every = tl.load(parts + (splits[:, None] * tokens + token) * RANK + ranks[None, :])
    narrow = tl.sum(every, axis=0)
    found = before + tl.sum(tile.to(tl.float32) * narrow[:, None], axis=0)
    tl.store(out + token * width + at, found.to(out.dtype.element_ty), mask=there)
