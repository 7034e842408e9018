"""Weights of one to eight bits in groups of 128, stored as pieces whose bits divide a word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GROUP = 128
WORD = 32
PIECES = (4, 2, 1)
PROGRAMS = 4
"""Programs on each multiprocessor that a launch aims at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrow:
    """A matrix [k, n] of codes, as `kernels.bits` reads it."""

    bits: int
    pieces: tuple[tuple[int, Any], ...]
    """Bits of a piece and its words [k * bits / 32, n], the highest first."""
    scales: Any
    """[groups, n] bf16."""

    @property
    def nbytes(self) -> int:
        parts = (*(words for _, words in self.pieces), self.scales)
        return sum(int(part.numel() * part.element_size()) for part in parts)


def pieces_of(bits: int) -> tuple[int, ...]:
    """Pieces of a code, the highest first: 8 is 4 and 4, 6 is 4 and 2, 5 is 4 and 1, 3 is 2 and 1."""
    found: list[int] = []
    for piece in PIECES:
        while bits >= piece and len(found) < len(PIECES):
            found.append(piece)
            bits -= piece
    return tuple(found)


def rounded(torch: Any, weights: Any, bits: int) -> tuple[Any, Any]:
    """Codes [k, n] in int32 and scales [groups, n] of weights [k, n], to nearest around the middle of the codes."""
    k, n = weights.shape
    groups = weights.float().view(k // GROUP, GROUP, n)
    most = max(2 ** (bits - 1) - 1, 1)
    scales = (groups.abs().amax(1) / most).clamp(min=1e-8).to(torch.bfloat16)
    middle = 2 ** (bits - 1)
    codes = torch.round(groups / scales.float()[:, None]).clamp(-middle, middle - 1) + middle
    return codes.view(k, n).to(torch.int32), scales


def pack(torch: Any, codes: Any, scales: Any, bits: int) -> Narrow:
    k, n = codes.shape
    left, found = bits, []
    for piece in pieces_of(bits):
        left -= piece
        part = ((codes >> left) & (2**piece - 1)).view(k * piece // WORD, WORD // piece, n).to(torch.int64)
        shifts = torch.arange(WORD // piece, device=codes.device)[None, :, None] * piece
        whole = (part << shifts).sum(1)
        found.append((piece, torch.where(whole >= 2**31, whole - 2**32, whole).to(torch.int32).contiguous()))
    return Narrow(bits=bits, pieces=tuple(found), scales=scales)


def unpack(torch: Any, narrow: Narrow) -> Any:
    """Codes [k, n]."""
    codes: Any = 0
    for piece, words in narrow.pieces:
        shifts = torch.arange(WORD // piece, device=words.device, dtype=torch.int32)[None, :, None] * piece
        part = ((words[:, None] >> shifts) & (2**piece - 1)).flatten(0, 1)
        codes = (codes << piece) | part if isinstance(codes, torch.Tensor) else part
    return codes


def weights(torch: Any, narrow: Narrow) -> Any:
    """Dequantized weights [k, n] in fp32."""
    centred = unpack(torch, narrow).float() - 2 ** (narrow.bits - 1)
    return centred * narrow.scales.float().repeat_interleave(GROUP, 0)


@dataclass(frozen=True, slots=True)
class BitsTile:
    """Columns of a program, warps, and splits of k."""

    columns: int
    warps: int
    splits: int

    @property
    def name(self) -> str:
        return f"{self.columns} columns, {self.warps} warps, {self.splits} splits"


def tiles(n: int, groups: int, processors: int) -> list[BitsTile]:
    found = []
    for columns, warps in ((64, 1), (128, 2), (128, 4), (256, 4)):
        programs = -(-n // columns)
        fewest = max(1, min(groups, -(-PROGRAMS * processors // programs)))
        found += [BitsTile(columns, warps, min(groups, fewest * more)) for more in (1, 4)]
    return list(dict.fromkeys(found))


def multiply(torch: Any, tile: BitsTile, x: Any, narrow: Narrow) -> Any:
    """x [k] times the weights, in x's format."""
    from gnomon.lab.kernels.bits import vector

    groups, n = narrow.scales.shape
    each = -(-groups // tile.splits)
    splits = -(-groups // each)
    out = torch.empty(splits, n, dtype=torch.float32, device=x.device)
    words = [words for _, words in narrow.pieces] + [narrow.scales] * (len(PIECES) - len(narrow.pieces))
    sizes = [piece for piece, _ in narrow.pieces] + [0] * (len(PIECES) - len(narrow.pieces))
    grid = (-(-n // tile.columns), splits)
    vector[grid](
        x, *words, narrow.scales, out, n, groups, each,
        HIGH=sizes[0], MIDDLE=sizes[1], LOW=sizes[2], BLOCK_N=tile.columns, num_warps=tile.warps,
    )  # fmt: skip
    return (out.sum(0) if splits > 1 else out[0]).to(x.dtype)
