"""GPTQ: weights rounded to four bits column by column, each error spread over the columns not yet rounded.

Frantar et al., arXiv:2210.17323, section 3. `gptq` works in blocks on the Cholesky factor of the inverse Hessian;
`by_definition` inverts the Hessian of the columns left anew for each column, and is what the other must equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LEVELS = 15
"""The largest code of four bits."""
MIDDLE = 8
DAMPING = 0.01
"""Added to the Hessian's diagonal, relative to its mean."""
BLOCK = 128
"""Columns whose errors are spread over the rest at once; a multiple of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """Codes 0 to 15 [rows, columns] in the order they were rounded, with a scale and a zero for each group."""

    codes: Any
    scales: Any
    """[rows, groups], values of bf16."""
    zeros: Any
    """[rows, groups], whole numbers."""
    order: Any
    """The matrix column at each position; None where they are in order."""

    def rounded(self) -> Any:
        """Dequantized weights, in the order they were rounded."""
        group = self.codes.shape[1] // self.scales.shape[1]
        zeros, scales = (each.repeat_interleave(group, 1) for each in (self.zeros, self.scales))
        return (self.codes.to(scales.dtype) - zeros) * scales

    def weights(self) -> Any:
        """Dequantized weights, in the matrix's order."""
        found = self.rounded()
        if self.order is None:
            return found
        back = found.clone()
        back[:, self.order] = found
        return back


def hessian(torch: Any, activations: Any) -> Any:
    """The damped Hessian of the squared error of a layer's output; `activations` are [tokens, columns]."""
    found = activations.T @ activations * (2 / activations.shape[0])
    diagonal = found.diagonal()
    diagonal += DAMPING * diagonal.mean()
    return found


def grid(torch: Any, weights: Any, *, symmetric: bool) -> tuple[Any, Any]:
    """Scale and zero of each row of a group, the scale rounded to bf16, as it is stored."""
    if symmetric:
        scale = 2 * weights.abs().amax(1) / LEVELS
    else:
        scale = (weights.amax(1).clamp(min=0) - weights.amin(1).clamp(max=0)) / LEVELS
    scale = scale.to(torch.bfloat16).to(weights.dtype)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    if symmetric:
        return scale, torch.full_like(scale, MIDDLE)
    return scale, torch.round(-weights.amin(1).clamp(max=0) / scale).clamp(0, LEVELS)


def code(torch: Any, column: Any, scale: Any, zero: Any) -> Any:
    return torch.clamp(torch.round(column / scale) + zero, 0, LEVELS)


def nearest(torch: Any, weights: Any, group: int, *, symmetric: bool) -> Quantised:
    """Round-to-nearest of every weight."""
    codes, scales, zeros = torch.empty_like(weights), [], []
    for start in range(0, weights.shape[1], group):
        part = weights[:, start : start + group]
        scale, zero = grid(torch, part, symmetric=symmetric)
        codes[:, start : start + group] = code(torch, part, scale[:, None], zero[:, None])
        scales.append(scale)
        zeros.append(zero)
    return _kept(torch, codes, scales, zeros, None)


def gptq(torch: Any, weights: Any, hessian: Any, group: int, *, symmetric: bool, by_activity: bool) -> Quantised:
    """`by_activity` rounds the columns with the largest inputs first; groups are then of columns in that order."""
    order = torch.argsort(hessian.diagonal(), descending=True, stable=True) if by_activity else None
    left, curvature = weights.clone(), hessian
    if order is not None:
        left, curvature = left[:, order], hessian[order][:, order]
    # In float64: a nearly singular Hessian still has its factor there.
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(curvature.to(torch.float64)))
    factor = torch.linalg.cholesky(inverse, upper=True).to(weights.dtype)
    codes, scales, zeros = torch.empty_like(left), [], []
    for start in range(0, left.shape[1], BLOCK):
        end = min(start + BLOCK, left.shape[1])
        block, errors = left[:, start:end], torch.empty_like(left[:, start:end])
        for at in range(start, end):
            place = at - start
            if at % group == 0:
                scale, zero = grid(torch, left[:, at : at + group], symmetric=symmetric)
                scales.append(scale)
                zeros.append(zero)
            column = block[:, place]
            codes[:, at] = code(torch, column, scale, zero)
            error = (column - (codes[:, at] - zero) * scale) / factor[at, at]
            block[:, place:] -= error[:, None] * factor[at, at:end]
            errors[:, place] = error
        left[:, end:] -= errors @ factor[start:end, end:]
    return _kept(torch, codes, scales, zeros, order)


def by_definition(torch: Any, weights: Any, hessian: Any, group: int, *, symmetric: bool) -> Quantised:
    """GPTQ without blocks or factors; for small matrices."""
    left, codes, scales, zeros = weights.clone(), torch.empty_like(weights), [], []
    for at in range(left.shape[1]):
        if at % group == 0:
            scale, zero = grid(torch, left[:, at : at + group], symmetric=symmetric)
            scales.append(scale)
            zeros.append(zero)
        codes[:, at] = code(torch, left[:, at], scale, zero)
        inverse = torch.linalg.inv(hessian[at:, at:])
        error = left[:, at] - (codes[:, at] - zero) * scale
        left[:, at:] -= error[:, None] * inverse[0] / inverse[0, 0]
    return _kept(torch, codes, scales, zeros, None)


def output_error(weights: Any, rounded: Any, activations: Any) -> float:
    """Squared error of a layer's outputs for inputs [tokens, columns], relative to their size."""
    apart, size = (activations @ (weights - rounded).T).square().sum(), (activations @ weights.T).square().sum()
    return float(apart / size)


def _kept(torch: Any, codes: Any, scales: list[Any], zeros: list[Any], order: Any) -> Quantised:
    return Quantised(
        codes=codes.to(torch.uint8), scales=torch.stack(scales, 1), zeros=torch.stack(zeros, 1), order=order
    )
