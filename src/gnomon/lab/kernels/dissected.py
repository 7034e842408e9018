# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton kernels that time one thing each: a chain of loads, matrix instructions without memory, and tiles of a GEMM
whose loads run ahead or not."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["start", "steps"])
def chase(following, out, start, steps):
    """Where a chain of indices ends after so many steps; each load needs the one before. To be run by one warp."""
    at = start
    for _ in range(steps):
        at = tl.load(following + at)
    tl.store(out, at)


@triton.jit(do_not_specialize=["times"])
def multiplied(a, b, out, times, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """out [programs, M, N] in fp32: a [M, K] times b [K, N], added up so many times, operands loaded once."""
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + rows[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * N + columns[None, :])
    total = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(times):
        total = tl.dot(left, right, acc=total)
    tl.store(out + (tl.program_id(0) * M + rows[:, None]) * N + columns[None, :], total)


@triton.jit
def tiled(a, b, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr):
    """out [n, n]: a [n, n] times the transpose of b [n, n]; n is a multiple of every side of a tile.

    Tiles are taken eight rows of them at a time, so that those that run together share operands in the L2 cache.
    """
    across = n // N
    program = tl.program_id(0)
    first = program // (8 * across) * 8
    high = tl.minimum(n // M - first, 8)
    rows = (first + program % (8 * across) % high) * M + tl.arange(0, M)
    columns = program % (8 * across) // high * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    left = a + rows[:, None] * n + inner[None, :]
    right = b + columns[None, :] * n + inner[:, None]
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(0, n, K, num_stages=STAGES):
        total = tl.dot(tl.load(left + step), tl.load(right + step), acc=total)
    tl.store(out + rows[:, None] * n + columns[None, :], total.to(out.dtype.element_ty))
