"""2:4 sparsity: masks with two of each four values, also in both directions, and GEMMs of PyTorch that use them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, product
from typing import Any

FOUR = 4
CUSPARSELT, CUTLASS, MASKED = "cuSPARSELt", "CUTLASS", "masked dense"
SPARSE_OVER_DENSE = 1.2
"""A Hopper GEMM with a 2:4 operand over the dense one: the sparse example of CUTLASS on an H100 (NVIDIA/cutlass, issues
1335 and 2229). The data sheet has 2."""
Gemm = Callable[[Any], Any]


def mask(torch: Any, weights: Any) -> Any:
    """The two largest of each four values of a row."""
    groups = weights.abs().unflatten(-1, (-1, FOUR))
    kept = groups.topk(2, dim=-1).indices
    return torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, kept, True).flatten(-2)


@cache
def _patterns() -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The 90 tiles of 4 x 4 with two values in every row and column."""
    rows = [tuple(int(i in pair) for i in range(FOUR)) for pair in combinations(range(FOUR), 2)]
    return tuple(
        tile for tile in product(rows, repeat=FOUR) if all(sum(column) == 2 for column in zip(*tile, strict=True))
    )


def transposable_mask(torch: Any, weights: Any) -> Any:
    """Of each 4 x 4 tile the pattern, 2:4 along rows and columns, that keeps the largest sum of magnitudes."""
    patterns = torch.tensor(_patterns(), device=weights.device, dtype=torch.float32).flatten(1)
    n, k = weights.shape
    tiles = weights.abs().float().view(n // FOUR, FOUR, k // FOUR, FOUR).transpose(1, 2).reshape(-1, FOUR * FOUR)
    best = (tiles @ patterns.T).argmax(1)
    chosen = patterns[best].view(n // FOUR, k // FOUR, FOUR, FOUR).transpose(1, 2)
    return chosen.reshape(n, k).bool()


def sparse_linear(torch: Any, weights: Any, how: str) -> Gemm:
    """x -> x @ weights.T with weights [n, k] that are 2:4 along k; compresses them."""
    if how == MASKED:
        return lambda x: torch.nn.functional.linear(x, weights)
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS

    kind = SparseSemiStructuredTensorCUSPARSELT if how == CUSPARSELT else SparseSemiStructuredTensorCUTLASS
    narrow = kind.from_dense(weights)
    return lambda x: torch.nn.functional.linear(x, narrow)


def sparse_int8(torch: Any, weights: Any, how: str) -> Gemm:
    """x -> x @ weights.T for int8 operands and int32 sums."""
    if how == MASKED:
        return lambda x: (x.int() @ weights.int().T) if x.device.type == "cpu" else torch._int_mm(x, weights.T)
    narrow = torch._cslt_compress(weights)
    return lambda x: torch._cslt_sparse_mm(narrow, x.T, out_dtype=torch.int32, transpose_result=True)
