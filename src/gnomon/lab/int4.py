"""Weights of four bits, packed, and products with them: one fused kernel, or unfolded to 16 bits and multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnomon.lab.quantise import Quantised

GROUP, WORDS, PARTS = 128, 16, 8
MAGIC = {"torch.bfloat16": (0x4300, 128.0), "torch.float16": (0x6400, 1024.0)}
"""The bits of the number whose last bit counts one, and that number."""
WARPS, STAGES = 4, 4
SUM_BLOCK, UNFOLD_BLOCK = 1024, 128
TALLEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A matrix [k, n] in groups of 128 along k, laid out as `int4_kernels` reads it."""

    words: Any
    """[16 groups, n] int32."""
    scales: Any
    """[groups, n] bf16."""
    zeros: Any
    """[groups, n] uint8."""
    order: Any = None
    """Which column of the input stands at each place of k."""

    @property
    def n(self) -> int:
        return int(self.words.shape[1])

    @property
    def groups(self) -> int:
        return int(self.scales.shape[0])

    @property
    def nbytes(self) -> int:
        return sum(int(each.numel() * each.element_size()) for each in (self.words, self.scales, self.zeros))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """How the fused kernel cuts its work: columns a program, and how often k is split."""

    columns: int
    splits: int


def pack(torch: Any, quantised: Quantised) -> Packed:
    codes = quantised.codes.T.to(torch.int64)
    k, n = codes.shape
    shifts = 4 * torch.arange(PARTS, device=codes.device)
    words = (codes.reshape(-1, PARTS, WORDS, n) << shifts[None, :, None, None]).sum(1).reshape(k // PARTS, n)
    signed = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    scales = quantised.scales.T.to(torch.bfloat16).contiguous()
    zeros = quantised.zeros.T.to(torch.uint8).contiguous()
    return Packed(words=signed.contiguous(), scales=scales, zeros=zeros, order=quantised.order)


def unpack(torch: Any, packed: Packed) -> Any:
    """The codes [n, k] again."""
    shifts = 4 * torch.arange(PARTS, device=packed.words.device, dtype=torch.int32)
    words = packed.words.reshape(-1, 1, WORDS, packed.n)
    codes = (words >> shifts[None, :, None, None]) & 0xF
    return codes.reshape(-1, packed.n).T.to(torch.uint8)


def weights(torch: Any, packed: Packed) -> Any:
    """The matrix [k, n] it stands for, in fp32, in the packed order."""
    values = unpack(torch, packed).T.to(torch.float32)
    zeros, scales = (each.to(torch.float32).repeat_interleave(GROUP, 0) for each in (packed.zeros, packed.scales))
    return (values - zeros) * scales


def tiles(m: int, n: int, groups: int, processors: int) -> list[Tile]:
    """Cuts worth trying: few rows need k split so that every processor streams weights."""
    rows = -(-m // rows_of(m))
    found = []
    for columns in (64, 128):
        for share in (2, 4):
            wanted = share * processors / (rows * -(-n // columns))
            tile = Tile(columns=columns, splits=max(1, min(groups, round(wanted))))
            found += [tile] if tile not in found else []
    return found


def rows_of(m: int) -> int:
    """Rows of the input that a program takes; the tensor cores' least is 16."""
    return next(rows for rows in (16, 32, TALLEST) if m <= rows or rows == TALLEST)


def arranged(x: Any, packed: Packed) -> Any:
    """Inputs in the packed order of k, as the products take them."""
    return x if packed.order is None else x[:, packed.order].contiguous()


def fused(torch: Any, tile: Tile, x: Any, packed: Packed) -> Any:
    """x [m, k] times the weights, unpacked inside one kernel; k in the packed order."""
    from gnomon.lab import int4_kernels as kernels

    m, n, groups = int(x.shape[0]), packed.n, packed.groups
    magic, offset = MAGIC[str(x.dtype)]
    each = -(-groups // tile.splits)
    splits = -(-groups // each)
    alone = splits == 1
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    parts = out if alone else torch.empty(splits, m, n, dtype=torch.float32, device=x.device)
    tall = rows_of(m)
    kernels.products[(-(-n // tile.columns), -(-m // tall), splits)](
        x,
        packed.words,
        packed.scales,
        packed.zeros,
        parts,
        m,
        n,
        groups,
        each,
        MAGIC=magic,
        OFFSET=offset,
        BLOCK_M=tall,
        BLOCK_N=tile.columns,
        num_warps=WARPS,
        num_stages=STAGES,
    )
    if not alone:
        kernels.summed[(-(-m * n // SUM_BLOCK),)](parts, out, m * n, splits, BLOCK=SUM_BLOCK)
    return out


def unfolded(torch: Any, x: Any, packed: Packed) -> Any:
    """The weights written out in x's format by a kernel, then torch.matmul; k in the packed order."""
    from gnomon.lab import int4_kernels as kernels

    n, groups = packed.n, packed.groups
    wide = torch.empty(groups * GROUP, n, dtype=x.dtype, device=x.device)
    kernels.unfolded[(groups, -(-n // UNFOLD_BLOCK))](
        packed.words, packed.scales, packed.zeros, wide, n, BLOCK_N=UNFOLD_BLOCK
    )
    return torch.matmul(x, wide)


def plainly(torch: Any, x: Any, packed: Packed) -> Any:
    """The same by PyTorch alone, where there is no Triton."""
    return torch.matmul(x, weights(torch, packed).to(x.dtype))
