"""Backward passes in halves: gradients of inputs at once, those of matrices when a schedule says so.

A linear layer computes what the layer before it waits for, and puts the GEMM of its weights aside with its operands;
so does the grouped GEMM of experts.
Norms, biases and embeddings are done with the inputs. (PyTorch's own split backward writes gradients of weights without
the hooks by which the optimizer here collects them.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from gnomon.engines.torch.experts import GROUPED_GEMM, LocalExperts, grouped
from gnomon.engines.torch.model import Part, Tensor

Pass = tuple[int, int]
"""A model chunk of this rank, and a micro-batch."""


class WeightGradients:
    """GEMMs by weight that wait for their task."""

    def __init__(self) -> None:
        self.current: Pass | None = None
        self.waiting: dict[Pass, list[Callable[[], None]]] = defaultdict(list)

    def defer(self, part: Part) -> None:
        """Have the linear layers of a part put their weights aside while a pass is `current`."""
        for module in part.modules():
            if isinstance(module, nn.Linear):
                module.forward = partial(_linear, module, self)
            elif isinstance(module, LocalExperts):
                module.grouped = partial(_grouped, self)

    def run(self, which: Pass) -> None:
        for compute in self.waiting.pop(which, []):
            compute()


def _linear(module: nn.Linear, store: WeightGradients, x: Tensor) -> Tensor:
    return _Deferred.apply(x, module.weight, module.bias, store)


class _Deferred(torch.autograd.Function):  # type: ignore[misc]
    """A linear layer whose weight gradient may come later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, store: WeightGradients) -> Tensor:
        ctx.save_for_backward(x)
        # The weight itself: one that hooks of saved tensors bring back collects no gradient once the graph is gone.
        ctx.weight, ctx.store, ctx.biased = weight, store, bias is not None
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        (x,), weight = ctx.saved_tensors, ctx.weight
        by_bias = grad.flatten(0, -2).sum(0) if ctx.biased else None
        if ctx.store.current is None:
            return grad @ weight, _by_weight(x, grad), by_bias, None
        ctx.store.waiting[ctx.store.current].append(partial(_accumulate, weight, x, grad))
        return grad @ weight, None, by_bias, None


def _grouped(store: WeightGradients, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return _DeferredGroups.apply(x, weight, ends, store)


class _DeferredGroups(torch.autograd.Function):  # type: ignore[misc]
    """A grouped GEMM whose weight gradients may come later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ends: Tensor, store: WeightGradients) -> Tensor:
        ctx.save_for_backward(x, ends)
        ctx.weight, ctx.store = weight, store
        return grouped(x, weight, ends)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        (x, ends), weight = ctx.saved_tensors, ctx.weight
        by_input = GROUPED_GEMM(grad, weight, offs=ends)
        if ctx.store.current is None:
            return by_input, _by_groups(x, grad, ends), None, None
        ctx.store.waiting[ctx.store.current].append(lambda: weight.backward(_by_groups(x, grad, ends)))
        return by_input, None, None, None


def _by_groups(x: Tensor, grad: Tensor, ends: Tensor) -> Tensor:
    return GROUPED_GEMM(grad.mT, x, offs=ends)


def _by_weight(x: Tensor, grad: Tensor) -> Tensor:
    return grad.flatten(0, -2).T @ x.flatten(0, -2)


def _accumulate(weight: Tensor, x: Tensor, grad: Tensor) -> None:
    """As a backward pass does it, hooks of the weight included."""
    weight.backward(_by_weight(x, grad))
