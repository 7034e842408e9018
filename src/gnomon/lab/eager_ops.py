"""A norm and a rotation as Hugging Face's modules run them, an operator after the other, and what each kernel moves."""

from __future__ import annotations

from typing import Any

from gnomon.lab.bench import Bench

NORM = ((1, 2), (2, 2), (2, 0), (0, 0), (0, 0), (2, 2), (2, 1), (1, 1))
"""Reads and writes of a norm's kernels, in what it is given: to fp32, squared, averaged, a sum, a root, scaled, back to
bf16, times its gain."""
ROTATION = ((0.5, 0.5), (1, 1), (1, 1), (1, 1), (2, 1))
"""Of a rotation's: half of each head negated, both halves put together, each factor multiplied by, their sum."""


def rms_norm(torch: Any, x: Any, gain: Any, epsilon: float) -> Any:
    """In fp32, or fp64 where x is."""
    wide = x if x.dtype == torch.float64 else x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return gain * scaled.to(x.dtype)


def rotated(torch: Any, x: Any, angles: tuple[Any, Any]) -> Any:
    """Rotary embedding of x [..., tokens, dim] by cosines and sines [tokens, dim]."""
    first, second = x.chunk(2, -1)
    return x * angles[0] + torch.cat((-second, first), -1) * angles[1]


def rotary_angles(bench: Bench, tokens: int, dim: int, base: float, dtype: Any) -> tuple[Any, Any]:
    """Cosines and sines of each token's angles."""
    torch = bench.torch
    rates = base ** (-torch.arange(0, dim, 2, device=bench.device) / dim)
    angle = (torch.arange(tokens, device=bench.device)[:, None] * rates).repeat(1, 2)
    return angle.cos().to(dtype), angle.sin().to(dtype)
