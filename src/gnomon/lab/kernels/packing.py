# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""A Triton kernel that packs strided blocks of up to three dimensions, one program for many of them."""

import triton
import triton.language as tl


@triton.jit
def packed(source, out, count, rows, row_stride, plane_stride, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    """out [count] words: blocks of WORDS words, `rows` of them to a plane, their strides in words of the source."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    block = at // WORDS
    place = block // rows * plane_stride + block % rows * row_stride + at % WORDS
    tl.store(out + at, tl.load(source + place, mask=there), mask=there)
