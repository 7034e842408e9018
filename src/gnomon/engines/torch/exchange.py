"""An all-to-all that autograd knows."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

Tensor = Any
Counts = list[int] | None
"""Rows for, or from, each rank; None for equal parts."""


def all_to_all(x: Tensor, sent: Counts, received: Counts, group: Any) -> Tensor:
    """Rows of `x`, the first for the first rank, exchanged for those of the other ranks for this one."""
    return _AllToAll.apply(x, sent, received, group)


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor, sent: Counts, received: Counts, group: Any) -> Tensor:
        ctx.counts, ctx.group = (sent, received), group
        return exchanged(x, sent, received, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        sent, received = ctx.counts
        return exchanged(grad, received, sent, ctx.group), None, None, None


def exchanged(x: Tensor, sent: Counts, received: Counts, group: Any) -> Tensor:
    """Without autograd."""
    rows = x.shape[0] if received is None else sum(received)
    found = x.new_empty((rows, *x.shape[1:]))
    dist.all_to_all_single(found, x.contiguous(), received, sent, group=group)
    return found
