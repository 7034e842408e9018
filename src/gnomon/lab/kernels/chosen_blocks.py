# mypy: disable-error-code="no-untyped-def,misc,no-untyped-call,untyped-decorator"
"""A Triton kernel for attention of each block of queries over blocks that were chosen for it, and over its own."""

import triton
import triton.language as tl


@triton.jit
def _over(query, k, v, start, highest, total, mixed, D: tl.constexpr, BLOCK: tl.constexpr):
    """One block of keys taken into a running softmax, whose scores are in powers of two."""
    at = start + tl.arange(0, BLOCK)
    dims = tl.arange(0, D)
    keys = tl.load(k + at[None, :] * D + dims[:, None])
    values = tl.load(v + at[:, None] * D + dims[None, :])
    scores = tl.dot(query, keys)
    raised = tl.maximum(highest, tl.max(scores, 1))
    shares = tl.exp2(scores - raised[:, None])
    before = tl.exp2(highest - raised)
    total = total * before + tl.sum(shares, 1)
    mixed = mixed * before[:, None] + tl.dot(shares.to(values.dtype), values)
    return raised, total, mixed


@triton.jit
def attend(
    q,
    k,
    v,
    blocks,
    gates,
    out,
    tokens,
    head_stride,
    token_stride,
    scale,
    GROUP: tl.constexpr,
    PACK: tl.constexpr,
    COUNT: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """out [heads, tokens, D] = gates[0] * out + gates[1] * attention over the chosen blocks + gates[2] * over its own.

    q has the same shape, k and v [heads / GROUP, tokens, D], blocks [heads / GROUP, tokens / BLOCK, COUNT] int32, gates
    [3, heads, tokens] fp32, all contiguous; the strides are those of out. scale is that of scores in powers of two. A
    program has PACK heads of one block.
    """
    block = tl.program_id(0)
    first = tl.program_id(1) * PACK
    shared = first // GROUP
    rows = tl.arange(0, PACK * BLOCK)
    heads = first + rows // BLOCK
    places = heads.to(tl.int64) * tokens + block * BLOCK + rows % BLOCK
    dims = tl.arange(0, D)
    query = tl.load(q + places[:, None] * D + dims[None, :])
    query = (query.to(tl.float32) * scale).to(query.dtype)
    k += shared.to(tl.int64) * tokens * D
    v += shared.to(tl.int64) * tokens * D
    chosen = blocks + (shared * (tokens // BLOCK) + block) * COUNT
    lowest = tl.full((PACK * BLOCK,), float("-inf"), tl.float32)
    nothing = tl.zeros((PACK * BLOCK,), tl.float32)
    empty = tl.zeros((PACK * BLOCK, D), tl.float32)
    highest, total, mixed = lowest, nothing, empty
    for i in range(COUNT):
        start = tl.load(chosen + i) * BLOCK
        highest, total, mixed = _over(query, k, v, start, highest, total, mixed, D, BLOCK)
    found = tl.load(gates + tl.num_programs(1) * PACK * tokens + places)[:, None] * mixed / total[:, None]
    highest, total, mixed = _over(query, k, v, block * BLOCK, lowest, nothing, empty, D, BLOCK)
    found += tl.load(gates + 2 * tl.num_programs(1) * PACK * tokens + places)[:, None] * mixed / total[:, None]
    there = heads.to(tl.int64) * head_stride + (block * BLOCK + rows % BLOCK).to(tl.int64) * token_stride
    there = out + there[:, None] + dims[None, :]
    found += tl.load(gates + places)[:, None] * tl.load(there).to(tl.float32)
    tl.store(there, found.to(out.dtype.element_ty))
