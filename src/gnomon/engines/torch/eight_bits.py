"""AdamW over moments of eight bits: blocks of 256 values share a scale, and a byte stands for one of 256 numbers that
lie denser towards zero (dynamic tree quantisation, Dettmers et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

BLOCK = 256
BETAS = (0.9, 0.999)
EPS = 1e-8
WEIGHT_DECAY = 0.01
"""PyTorch's own for AdamW."""
MOST_VALUES = 2**24
"""That are in fp32 at once."""
DIGITS = 7
"""Decimal places that the numbers of a byte span."""
Tensor = Any


@cache
def numbers(signed: bool) -> Tensor:
    """The 256 numbers in order, from -1 or 0 to 1: the fewer leading zeros the exponent has, the more bits are left for
    the fraction."""
    found, bits = [0.0, 1.0], DIGITS - 1 if signed else DIGITS
    for place in range(DIGITS):
        edges = torch.linspace(0.1, 1, 2 ** (place + bits - DIGITS + 1) + 1, dtype=torch.float64)
        middles = ((edges[:-1] + edges[1:]) / 2 * 10.0 ** (place + 1 - DIGITS)).tolist()
        found += middles + [-one for one in middles] * signed
    return torch.tensor(sorted(found), dtype=torch.float64).float()


@dataclass(slots=True)
class ByteMoment:
    """Values of one moment as bytes, with the largest of each block."""

    codes: Tensor
    scales: Tensor
    signed: bool

    @classmethod
    def zeros(cls, count: int, device: Any, signed: bool) -> ByteMoment:
        blocks = -(-count // BLOCK)
        code = int(torch.searchsorted(numbers(signed), torch.zeros(())))
        codes = torch.full((blocks * BLOCK,), code, dtype=torch.uint8, device=device)
        return cls(codes, torch.zeros(blocks, device=device), signed)

    def read(self, first: int, count: int) -> Tensor:
        """So many values in fp32, from a block's first on."""
        table = numbers(self.signed).to(self.codes.device)
        values = table[self.codes[first : first + count].int()].view(-1, BLOCK)
        return values.mul_(self.scales[first // BLOCK : (first + count) // BLOCK, None]).view(-1)

    def write(self, first: int, values: Tensor) -> None:
        """Each as the nearest number of its block's scale."""
        table = numbers(self.signed).to(values.device)
        blocks = values.view(-1, BLOCK)
        scales = blocks.abs().amax(1)
        self.scales[first // BLOCK : first // BLOCK + scales.numel()] = scales
        scaled = blocks / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
        between = (table[1:] + table[:-1]) / 2
        self.codes[first : first + values.numel()] = torch.bucketize(scaled, between, out_int32=True).view(-1)


class BlockwiseAdamW:
    """Updates fp32 or bf16 masters in place."""

    def __init__(self, masters: Sequence[Any], rate: float) -> None:
        self.masters, self.rate, self.steps = masters, rate, 0
        self.moments = [
            (ByteMoment.zeros(one.numel(), one.device, True), ByteMoment.zeros(one.numel(), one.device, False))
            for one in masters
        ]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        self.steps += 1
        for master, moments in zip(self.masters, self.moments, strict=True):
            weights, gradients = master.view(-1), master.grad.reshape(-1)
            for first in range(0, weights.numel(), MOST_VALUES):
                part = slice(first, min(first + MOST_VALUES, weights.numel()))
                self._update(weights[part], gradients[part].float(), moments, first)

    def _update(self, weights: Tensor, gradients: Tensor, moments: tuple[ByteMoment, ByteMoment], first: int) -> None:
        count = gradients.numel()
        whole = -(-count // BLOCK) * BLOCK
        if whole > count:
            gradients = torch.nn.functional.pad(gradients, (0, whole - count))
        mean = moments[0].read(first, whole).lerp_(gradients, 1 - BETAS[0])
        square = moments[1].read(first, whole).mul_(BETAS[1]).addcmul_(gradients, gradients, value=1 - BETAS[1])
        moments[0].write(first, mean)
        moments[1].write(first, square)
        size = self.rate / (1 - BETAS[0] ** self.steps)
        root = square.sqrt_().div_((1 - BETAS[1] ** self.steps) ** 0.5).add_(EPS)
        weights.mul_(1 - self.rate * WEIGHT_DECAY)
        weights.addcdiv_(mean[:count], root[:count], value=-size)
