"""Packed four-bit weights and GEMMs with them: one fused kernel, or dequantized to 16 bits and multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnomon.lab.quantise import Quantised

GROUP, WORDS, PARTS = 128, 16, 4
MAGIC = {"torch.bfloat16": (0x4300, 128.0), "torch.float16": (0x6400, 1024.0)}
"""The bits of the number whose last bit counts one, and that number."""
UNFOLD_BLOCK, SUM_TILE = 128, 4096
TALLEST, FEWEST = 64, 4
"""Rows that a program of the tensor cores takes at most; rows up to which `vector` is tried."""
MOST_SPLITS = 128
LANE_COLUMNS = 128
"""Columns that a warp of `vector` loads at once, 16 bytes per thread."""
GEMM = ((32, 2, 5), (64, 2, 4), (128, 4, 3), (128, 4, 5), (256, 8, 2))
TURNED = ((64, 4, 4), (128, 4, 3), (128, 4, 5))
"""Columns, warps and stages worth trying."""
VECTOR = ((4, 1), (8, 1), (16, 1), (8, 4))
"""Words per iteration and warps."""


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
    """The input column at each position of k; None where they are in order."""

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
    """A kernel and its tiling: columns per program, and splits of k."""

    kernel: str
    columns: int
    splits: int
    warps: int
    stages: int = 1
    words: int = WORDS
    """Words of a group that `vector` reads per iteration."""

    @property
    def name(self) -> str:
        how = f"{self.words} words" if self.kernel == "vector" else f"{self.stages} stages"
        return f"{self.kernel}, {self.columns} columns, {self.splits} splits, {self.warps} warps, {how}"


def pack(torch: Any, quantised: Quantised) -> Packed:
    codes = quantised.codes.T.to(torch.int64)
    k, n = codes.shape
    parts = codes.reshape(-1, PARTS, WORDS, 2, n) << _shifts(torch, codes)
    words = parts.sum((1, 3)).reshape(k // (2 * PARTS), n)
    signed = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    scales = quantised.scales.T.to(torch.bfloat16).contiguous()
    zeros = quantised.zeros.T.to(torch.uint8).contiguous()
    return Packed(words=signed.contiguous(), scales=scales, zeros=zeros, order=quantised.order)


def unpack(torch: Any, packed: Packed) -> Any:
    """The codes [n, k] of packed weights."""
    words = packed.words.reshape(-1, 1, WORDS, 1, packed.n)
    codes = (words >> _shifts(torch, words)) & 0xF
    return codes.reshape(-1, packed.n).T.to(torch.uint8)


def _shifts(torch: Any, like: Any) -> Any:
    """Of the parts of a word and its halves, for a tensor [groups, parts, words, halves, n]."""
    parts = 4 * torch.arange(PARTS, device=like.device, dtype=like.dtype)
    halves = 16 * torch.arange(2, device=like.device, dtype=like.dtype)
    return parts[None, :, None, None, None] + halves[None, None, None, :, None]


def weights(torch: Any, packed: Packed) -> Any:
    """The matrix [k, n] it stands for, in fp32, in the packed order."""
    values = unpack(torch, packed).T.to(torch.float32)
    zeros, scales = (each.to(torch.float32).repeat_interleave(GROUP, 0) for each in (packed.zeros, packed.scales))
    return (values - zeros) * scales


def tiles(m: int, n: int, groups: int, processors: int) -> list[Tile]:
    """Kernels and tiles worth trying: few rows need split-k so that every SM streams weights."""
    found: dict[Tile, None] = {}

    def add(kernel: str, columns: int, warps: int, share: int, rows: int, **other: int) -> None:
        wanted = round(share * processors / (rows * -(-n // columns)))
        each = -(-groups // max(1, min(groups, MOST_SPLITS, wanted)))
        found[Tile(kernel=kernel, columns=columns, splits=-(-groups // each), warps=warps, **other)] = None

    rows, many = -(-m // rows_of(m)), m > TALLEST
    for share in (8, 16, 32) if m <= FEWEST else ():
        for words, warps in VECTOR:
            add("vector", LANE_COLUMNS * warps, warps, max(1, share // warps), m, words=words)
    for share in (4,) if many else (4, 8):
        for kernel, tried in (("gemm", GEMM), ("turned", TURNED)):
            for columns, warps, stages in tried[2:3] if many else tried[::2] if m <= FEWEST else tried:
                add(kernel, columns, warps, share, rows, stages=stages)
    return list(found)


def rows_of(m: int) -> int:
    """Rows of the input that a program takes; the tensor cores' least is 16."""
    return next(rows for rows in (16, 32, TALLEST) if m <= rows or rows == TALLEST)


def arranged(x: Any, packed: Packed) -> Any:
    """Inputs in the packed order of k, as the kernels read them."""
    return x if packed.order is None else x[:, packed.order].contiguous()


def fused(torch: Any, tile: Tile, x: Any, packed: Packed) -> Any:
    """x [m, k] times the weights, unpacked inside one kernel; k in the packed order."""
    from gnomon.lab import int4_kernels as kernels

    m, n, groups = int(x.shape[0]), packed.n, packed.groups
    each = -(-groups // tile.splits)
    splits = -(-groups // each)
    alone = splits == 1
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    parts = out if alone else torch.empty(splits, m, n, dtype=torch.float32, device=x.device)
    given = (x, packed.words, packed.scales, packed.zeros, parts, m, n, groups, each)
    if tile.kernel == "vector":
        from gnomon.lab.int4_vector import FAR_MASK, vector

        vector[(m, -(-n // tile.columns), splits)](
            *given, FAR_MASK, BLOCK_W=tile.words, BLOCK_N=tile.columns, num_warps=tile.warps
        )
    else:
        magic, offset = MAGIC[str(x.dtype)]
        tall = rows_of(m)
        kernel = kernels.turned if tile.kernel == "turned" else kernels.gemm
        kernel[(-(-n // tile.columns), -(-m // tall), splits)](
            *given,
            MAGIC=magic,
            OFFSET=offset,
            BLOCK_M=tall,
            BLOCK_N=tile.columns,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    if not alone:
        high, wide = sum_tile(splits)
        kernels.summed[(-(-m * n // wide),)](parts, out, m * n, splits, SPLITS=high, BLOCK=wide)
    return out


def sum_tile(splits: int) -> tuple[int, int]:
    """Summands, as a power of two, and values that a program of the last sum takes."""
    high = 1 << (splits - 1).bit_length()
    return high, min(1024, SUM_TILE // high)


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
    """x times the weights by PyTorch alone, where there is no Triton."""
    return torch.matmul(x, weights(torch, packed).to(x.dtype))
