# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton kernels that do in one pass what libraries do in many: a chain of multiplications, and crops made ready."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["count"])
def chain(x, out, size, factor, count, BLOCK: tl.constexpr):
    """Each value times a factor, so many times."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < size
    value = tl.load(x + at, mask=there, other=0.0)
    for _ in range(count):
        value = value * factor
    tl.store(out + at, value, mask=there)


@triton.jit
def crops(
    image,
    corners,
    shifts,
    out,
    pitch,
    factor,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Crops of an image [rows, columns, 3] of bytes, resized, converted, scaled, shifted and split by channel.

    corners [crops, 2] int32 has each crop's first row and column, shifts [2, 3] what is taken off and divided by.
    """
    crop = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < OUT_HEIGHT * OUT_WIDTH
    row = (at // OUT_WIDTH + 0.5) * (HEIGHT / OUT_HEIGHT) - 0.5
    column = (at % OUT_WIDTH + 0.5) * (WIDTH / OUT_WIDTH) - 0.5
    row = tl.maximum(row, 0.0)
    column = tl.maximum(column, 0.0)
    top = row.to(tl.int32)
    left = column.to(tl.int32)
    down = row - top
    across = column - left
    bottom = tl.minimum(top + 1, HEIGHT - 1)
    right = tl.minimum(left + 1, WIDTH - 1)
    first = tl.load(corners + 2 * crop)
    second = tl.load(corners + 2 * crop + 1)
    for channel in tl.static_range(3):
        place = image + channel
        a = tl.load(place + ((first + top) * pitch + second + left) * 3, mask=there, other=0).to(tl.float32)
        b = tl.load(place + ((first + top) * pitch + second + right) * 3, mask=there, other=0).to(tl.float32)
        c = tl.load(place + ((first + bottom) * pitch + second + left) * 3, mask=there, other=0).to(tl.float32)
        d = tl.load(place + ((first + bottom) * pitch + second + right) * 3, mask=there, other=0).to(tl.float32)
        upper = a + (b - a) * across
        lower = c + (d - c) * across
        value = (upper + (lower - upper) * down) * factor
        value = (value - tl.load(shifts + channel)) / tl.load(shifts + 3 + channel)
        tl.store(out + (crop * 3 + channel) * (OUT_HEIGHT * OUT_WIDTH) + at, value, mask=there)
