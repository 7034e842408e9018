"""Weights in nf4: by bitsandbytes where it is installed and the weights are on a GPU, else by PyTorch's operators."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import torch

Tensor = Any
BLOCK, SCALES_BLOCK = 64, 256
CODES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""Quantiles of a normal distribution between -1 and 1 (Dettmers et al. 2023, appendix E)."""
OWN = "PyTorch's operators"


class Nf4Matrix(Protocol):
    """A matrix in nf4."""

    @property
    def kernel(self) -> str:
        """What dequantises it."""

    def unpack(self) -> Tensor:
        """The matrix in its working format."""


def pack(weight: Tensor, double: bool) -> Nf4Matrix:
    """A matrix in nf4; with `double` its scales are in eight bits."""
    if weight.is_cuda and find_spec("bitsandbytes"):
        return _ByBitsandbytes.of(weight, double)
    return _ByTorch.of(weight, double)


@dataclass(frozen=True, slots=True)
class _ByBitsandbytes:
    packed: Tensor
    state: Any
    kernel: str

    @classmethod
    def of(cls, weight: Tensor, double: bool) -> Nf4Matrix:
        import bitsandbytes

        packed, state = bitsandbytes.functional.quantize_4bit(
            weight.contiguous(), blocksize=BLOCK, compress_statistics=double, quant_type="nf4"
        )
        return cls(packed, state, f"bitsandbytes {bitsandbytes.__version__}")

    def unpack(self) -> Tensor:
        import bitsandbytes

        return bitsandbytes.functional.dequantize_4bit(self.packed, self.state)


@dataclass(frozen=True, slots=True)
class _ByTorch:
    packed: Tensor
    """Two codes a byte."""
    scales: Tensor
    """Of blocks of 64; in eight bits where they have scales of their own."""
    outer: tuple[Tensor, Tensor] | None
    """The mean of all scales, and a scale for each 256 of them."""
    shape: tuple[int, ...]
    dtype: Any
    kernel: str = OWN

    @classmethod
    def of(cls, weight: Tensor, double: bool) -> Nf4Matrix:
        blocks = weight.detach().float().view(-1, BLOCK)
        scales = blocks.abs().amax(1).clamp(min=1e-12)
        codes = torch.tensor(CODES, device=weight.device)
        edges = (codes[1:] + codes[:-1]) / 2
        places = torch.bucketize(blocks / scales[:, None], edges).to(torch.uint8).view(-1, 2)
        packed = places[:, 0] * 16 + places[:, 1]
        if not double:
            return cls(packed, scales, None, tuple(weight.shape), weight.dtype)
        mean = scales.mean()
        rest = torch.nn.functional.pad(scales - mean, (0, -scales.numel() % SCALES_BLOCK)).view(-1, SCALES_BLOCK)
        outer = rest.abs().amax(1).clamp(min=1e-12) / 127
        small = (rest / outer[:, None]).round().to(torch.int8).flatten()[: scales.numel()]
        return cls(packed, small, (mean, outer), tuple(weight.shape), weight.dtype)

    def unpack(self) -> Tensor:
        codes = torch.tensor(CODES, device=self.packed.device, dtype=torch.float32)
        both = torch.stack((codes.repeat_interleave(16), codes.repeat(16)), 1)
        values = both[self.packed.int()].view(-1, BLOCK)
        scales = self.scales
        if self.outer is not None:
            mean, outer = self.outer
            scales = scales.float() * outer.repeat_interleave(SCALES_BLOCK)[: scales.numel()] + mean
        return (values * scales[:, None]).to(self.dtype).view(self.shape)
