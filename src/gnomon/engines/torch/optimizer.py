"""Gradients reduced, clipped and applied.

`Flat` (ZeRO 0 and 1) keeps the weights of a rank in one buffer and their gradients in another, so that one
collective moves them all. `Sharded` (ZeRO 2 and 3) uses the shards of PyTorch's `fully_shard`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from gnomon.engines.torch.model import Tensor
from gnomon.engines.torch.parallel import DTYPES, Share
from gnomon.engines.torch.ranks import Place
from gnomon.spec import Recipe

LEARNING_RATE = 1e-3
CLIP_NORM = 1.0
TINY = 1e-6
"""Keeps a norm of zero from dividing, as `torch.nn.utils.clip_grad_norm_` does."""
MOST_VALUES = 2**30
"""Longer buffers are stepped in pieces: not every kernel indexes past 2**31."""

# Their names up to PyTorch 2.12, and after it.
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class State(Protocol):
    """The weights of a rank and their gradients, between the last backward and the next forward."""

    def reduce(self) -> None:
        """All-reduce or reduce-scatter the gradients over data-parallel ranks."""

    def gradients(self) -> tuple[list[Tensor], Tensor]:
        """After `reduce`: the gradients that this rank applies, and the weight of each in the global norm."""

    def step(self) -> None:
        """Update the weights and clear the gradients."""


def state(share: Share, recipe: Recipe, dtype: str, place: Place) -> State:
    return Sharded(share, place) if recipe.zero >= 2 else Flat(share, recipe, dtype, place)


def clip(owner: State, loss: Tensor, place: Place) -> Tensor:
    """Clip the gradients to a norm of 1; returns the norm before and the loss, both over all ranks.

    A gradient that several ranks hold is weighted by their number, so that one sum over the world is right.
    """
    pieces, shares = owner.gradients()
    norms = torch.stack(torch._foreach_norm(pieces, 2, torch.float32))
    totals = torch.stack((norms.square().dot(shares), loss))
    if place.world > 1:
        dist.all_reduce(totals)
    totals[0].sqrt_()
    scale = (CLIP_NORM / (totals[0] + TINY)).clamp(max=1.0)
    torch._foreach_mul_(pieces, scale.to(pieces[0].dtype))
    return totals


class Flat:
    """Weights in one buffer: those sharded by tensor parallelism, then replicated ones, last those whose gradients are
    summed over tensor-parallel ranks."""

    def __init__(self, share: Share, recipe: Recipe, dtype: str, place: Place) -> None:
        self.place = place
        self.shared = recipe.zero == 1 and place.size("dp") > 1
        named = sorted(share.named(), key=lambda entry: (entry[0] in share.copied, entry[0] in share.summed))
        counts = [_local(weight).numel() for _, weight in named]
        self.cut = sum(count for count, (name, _) in zip(counts, named, strict=True) if name not in share.copied)
        self.known = sum(count for count, (name, _) in zip(counts, named, strict=True) if name not in share.summed)
        length = sum(counts) + -sum(counts) % place.size("dp")
        kept = DTYPES[dtype] if recipe.optimizer == "adamw-bf16" else torch.float32
        self.weights = torch.zeros(length, dtype=DTYPES[dtype], device=place.device)
        self.grads = torch.zeros(length, dtype=kept, device=place.device)
        _move(named, self.weights, self.grads)
        self._shard()

    def _shard(self) -> None:
        """This rank's shard of the buffers, and the optimizer over it."""
        each = self.weights.numel() // self.place.size("dp")
        start = each * self.place.at("dp") if self.shared else 0
        self.own = slice(start, start + each if self.shared else self.weights.numel())
        masters = self.weights[self.own].to(self.grads.dtype)  # a view of the weights where the dtypes are equal
        self.masters = [nn.Parameter(piece) for piece in masters.split(MOST_VALUES)]
        for master, grad in zip(self.masters, self.grads[self.own].split(MOST_VALUES), strict=True):
            master.grad = grad
        self.optimizer = _adamw(self.masters, self.place)
        cut = _pieces(self.grads, self.own.start, min(self.cut, self.own.stop))
        copied = _pieces(self.grads, max(self.cut, self.own.start), self.own.stop)
        holders = self.place.size("dp") if not self.shared else 1
        shares = [1 / holders] * len(cut) + [1 / holders / self.place.size("tp")] * len(copied)
        self.pieces = [*cut, *copied], torch.tensor(shares, device=self.place.device)

    def reduce(self) -> None:
        if self.place.size("tp") > 1 and self.known < self.grads.numel():
            dist.all_reduce(self.grads[self.known :], group=self.place.group("tp"))
        if self.shared:
            _reduce_scatter(self.grads[self.own], self.grads, group=self.place.group("dp"))
        elif self.place.size("dp") > 1:
            dist.all_reduce(self.grads, group=self.place.group("dp"))

    def gradients(self) -> tuple[list[Tensor], Tensor]:
        return self.pieces

    def step(self) -> None:
        self.optimizer.step()
        if self.weights.dtype != self.grads.dtype:
            for weight, master in zip(self.weights[self.own].split(MOST_VALUES), self.masters, strict=True):
                weight.copy_(master.detach())
        if self.shared:
            _all_gather(self.weights, self.weights[self.own], group=self.place.group("dp"))
        self.grads.zero_()


class Sharded:
    """Weights sharded by `fully_shard`. The optimizer sees plain tensors that share their memory."""

    def __init__(self, share: Share, place: Place) -> None:
        self.place = place
        named = [(name, weight) for name, weight in share.named() if _local(weight).numel()]
        self.weights = [weight for _, weight in named]
        self.masters = [nn.Parameter(_local(weight).detach()) for weight in self.weights]
        self.summed = [weight for name, weight in named if name in share.summed]
        self.optimizer = _adamw(self.masters, place)
        shares = [1 / place.size("tp") if name in share.copied else 1.0 for name, _ in named]
        self.shares = torch.tensor(shares, device=place.device)

    def reduce(self) -> None:
        """Sum over tensor-parallel ranks; over data-parallel ranks the backward pass has done it already."""
        if self.summed:
            grads = [_local(weight.grad) for weight in self.summed]
            together = torch.cat([grad.flatten() for grad in grads])
            dist.all_reduce(together, group=self.place.group("tp"))
            torch._foreach_copy_(grads, _split_like(together, grads))

    def gradients(self) -> tuple[list[Tensor], Tensor]:
        return [_local(weight.grad) for weight in self.weights], self.shares

    def step(self) -> None:
        for master, weight in zip(self.masters, self.weights, strict=True):
            master.grad, weight.grad = _local(weight.grad), None
        self.optimizer.step()
        self.optimizer.zero_grad()


def _adamw(masters: list[Any], place: Place) -> Any:
    return torch.optim.AdamW(masters, lr=LEARNING_RATE, fused=place.device.type == "cuda")


def _local(tensor: Any) -> Any:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _pieces(flat: Tensor, start: int, stop: int) -> list[Tensor]:
    return list(flat[start:stop].split(MOST_VALUES)) if start < stop else []


def _split_like(flat: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    pieces = flat[: sum(tensor.numel() for tensor in tensors)].split([tensor.numel() for tensor in tensors])
    return [piece.view_as(tensor) for piece, tensor in zip(pieces, tensors, strict=True)]


def _move(named: list[tuple[str, Any]], weights: Tensor, grads: Tensor) -> None:
    """Make every weight a view of one buffer, and accumulate its gradients into the other."""
    olds = [_local(weight).detach() for _, weight in named]
    news, mains = _split_like(weights, olds), _split_like(grads, olds)
    for (_, weight), old, new, main in zip(named, olds, news, mains, strict=True):
        new.copy_(old)
        if isinstance(weight, DTensor):
            weight._local_tensor = new
        else:
            weight.data = new
        weight.register_post_accumulate_grad_hook(partial(_collect, main))


def _collect(main: Tensor, weight: Any) -> None:
    grad = weight.grad
    if grad is None:  # it comes later, apart from that of the inputs
        return
    if isinstance(grad, DTensor):
        grad = grad.redistribute(placements=weight.placements).to_local()
    main += grad
    weight.grad = None
