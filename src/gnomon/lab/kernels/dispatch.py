# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""Triton kernels that take tokens to the slots of their experts, and back."""

import triton
import triton.language as tl


@triton.jit
def encode(x, slots, rows, width, CHOICES: tl.constexpr, BLOCK: tl.constexpr):
    """Copy each row of x [tokens, width] to the rows [slots, width] that slots [tokens, CHOICES] int64 names."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    values = tl.load(x + token * width + at, mask=there)
    for choice in tl.static_range(CHOICES):
        slot = tl.load(slots + token * CHOICES + choice)
        tl.store(rows + slot * width + at, values, mask=there)


@triton.jit
def decode(rows, slots, gates, out, width, CHOICES: tl.constexpr, BLOCK: tl.constexpr):
    """out [tokens, width]: the sum of each token's rows [slots, width] times its gates [tokens, CHOICES], in fp32."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = at < width
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for choice in tl.static_range(CHOICES):
        slot = tl.load(slots + token * CHOICES + choice)
        gate = tl.load(gates + token * CHOICES + choice).to(tl.float32)
        total += gate * tl.load(rows + slot * width + at, mask=there, other=0.0).to(tl.float32)
    tl.store(out + token * width + at, total.to(out.dtype.element_ty), mask=there)
