"""Gradients reduced, clipped and applied.

`Flat` (ZeRO 0 and 1) keeps the weights of a rank in one buffer and their gradients in another, so that one
collective moves them all. `Sharded` (ZeRO 2 and 3) uses the shards of PyTorch's `fully_shard`. What updates the weights
is found by its name in `gnomon.engines.torch.optimizers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from gnomon.engines.torch.model import Tensor
from gnomon.engines.torch.optimizers import optimizers
from gnomon.engines.torch.parallel import DTYPES, Share
from gnomon.engines.torch.ranks import Place
from gnomon.spec import Recipe

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


def state(share: Share, recipe: Recipe, dtype: str, place: Place, home: Any = None) -> State:
    """`home` is the device of fp32 weights and optimizer states, where that is not the rank's own."""
    if recipe.zero >= 2:
        return Sharded(share, recipe, place, home)
    setting = Setting(recipe=recipe, dtype=DTYPES[dtype], place=place, home=home)
    return Several([Flat(share, axis, setting) for axis in ("copies", "expert_copies") if share.held(axis)])


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


class Several:
    """Weights that are reduced over different ranks."""

    def __init__(self, states: list[Flat]) -> None:
        self.states = states

    def reduce(self) -> None:
        for one in self.states:
            one.reduce()

    def gradients(self) -> tuple[list[Tensor], Tensor]:
        pieces, shares = zip(*(one.gradients() for one in self.states), strict=True)
        return [piece for one in pieces for piece in one], torch.cat(shares)

    def step(self) -> None:
        for one in self.states:
            one.step()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all weights of a rank have in common."""

    recipe: Recipe
    dtype: Any
    place: Place
    home: Any


class Flat:
    """Weights in one buffer, whose gradients are reduced over the ranks of one axis. First those sharded by tensor
    parallelism, then replicated ones, last those whose gradients are summed over tensor-parallel ranks."""

    def __init__(self, share: Share, axis: str, setting: Setting) -> None:
        place = setting.place
        self.place, self.home, self.axis, self.shards = place, setting.home, axis, place.shards(axis)
        self.rule = optimizers()[setting.recipe.optimizer]
        self.shared = setting.recipe.zero == 1 and place.size(axis) > 1
        named = sorted(share.held(axis), key=lambda entry: (entry[0] in share.copied, entry[0] in share.summed))
        counts = [_local(weight).numel() for _, weight in named]
        self.cut = sum(count for count, (name, _) in zip(counts, named, strict=True) if name not in share.copied)
        self.known = sum(count for count, (name, _) in zip(counts, named, strict=True) if name not in share.summed)
        length = sum(counts) + -sum(counts) % place.size(self.axis)
        kept = torch.float32 if self.rule.fp32_masters else setting.dtype
        self.weights = torch.zeros(length, dtype=setting.dtype, device=place.device)
        self.grads = torch.zeros(length, dtype=kept, device=place.device)
        _move(named, self.weights, self.grads)
        self._shard(named)

    def _shard(self, named: list[tuple[str, Any]]) -> None:
        """This rank's shard of the buffers, and the optimizer over it."""
        each = self.weights.numel() // self.place.size(self.shards)
        start = each * self.place.at(self.shards) if self.shared else 0
        self.own = slice(start, start + each if self.shared else self.weights.numel())
        # Views of weights and gradients where dtype and device are equal.
        self.updated = _at(self.home, self.weights[self.own], self.grads.dtype)
        self.sums = _at(self.home, self.grads[self.own])
        shapes = [(name, _local(weight)) for name, weight in named] if self.rule.by_weight else None
        masters = {name: nn.Parameter(piece) for name, piece in _masters(self.updated, shapes)}
        for master, (_, grad) in zip(masters.values(), _masters(self.sums, shapes), strict=True):
            master.grad = grad
        self.optimizer = self.rule.make(masters, self.place)
        cut = _pieces(self.grads, slice(self.own.start, min(self.cut, self.own.stop)))
        copied = _pieces(self.grads, slice(max(self.cut, self.own.start), self.own.stop))
        holders = self.place.size(self.axis) // (self.place.size(self.shards) if self.shared else 1)
        shares = [1 / holders] * len(cut) + [1 / holders / self.place.size("tp")] * len(copied)
        self.pieces = [*cut, *copied], torch.tensor(shares, device=self.place.device)

    def reduce(self) -> None:
        if self.place.size("tp") > 1 and self.known < self.grads.numel():
            dist.all_reduce(self.grads[self.known :], group=self.place.group("tp"))
        if self.shared:
            _reduce_scatter(self.grads[self.own], self.grads, group=self.place.group(self.shards))
            if self.shards != self.axis:
                dist.all_reduce(self.grads[self.own], group=self.place.group(f"{self.axis}.replicas"))
        elif self.place.size(self.axis) > 1:
            dist.all_reduce(self.grads, group=self.place.group(self.axis))

    def gradients(self) -> tuple[list[Tensor], Tensor]:
        return self.pieces

    def step(self) -> None:
        own = self.grads[self.own]
        if self.sums.data_ptr() != own.data_ptr():
            self.sums.copy_(own)
        self.optimizer.step()
        if self.updated.data_ptr() != self.weights[self.own].data_ptr():
            for weight, master in zip(_pieces(self.weights, self.own), self.updated.split(MOST_VALUES), strict=True):
                # Cast where it arrives: a cast on the host would copy from memory that is not pinned.
                weight.copy_(master.to(device=weight.device, non_blocking=True))
        if self.shared:
            _all_gather(self.weights, self.weights[self.own], group=self.place.group(self.shards))
        self.grads.zero_()


class Sharded:
    """Weights sharded by `fully_shard`. The optimizer sees plain tensors that share their memory."""

    def __init__(self, share: Share, recipe: Recipe, place: Place, home: Any = None) -> None:
        self.place, self.home = place, home
        named = [(name, weight) for name, weight in share.named() if _local(weight).numel()]
        self.weights = [weight for _, weight in named]
        self.masters = [nn.Parameter(_local(weight).detach().to(device=home)) for weight in self.weights]
        for master, weight in zip(self.masters, self.weights, strict=True):
            master.full_shape = weight.shape
        self.summed = [weight for name, weight in named if name in share.summed]
        masters = {name: master for (name, _), master in zip(named, self.masters, strict=True)}
        self.optimizer = optimizers()[recipe.optimizer].make(masters, place)
        shares = [1 / place.size("tp") if name in share.copied else 1.0 for name, _ in named]
        self.shares = torch.tensor(shares, device=place.device) / place.size("copies.replicas")

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
            master.grad, weight.grad = _local(weight.grad).to(device=self.home), None
        self.optimizer.step()
        for master, weight in zip(self.masters, self.weights, strict=True):
            master.grad = None
            if master.data_ptr() != _local(weight).data_ptr():
                _local(weight).detach().copy_(master.detach())


def _at(home: Any, tensor: Tensor, dtype: Any = None) -> Tensor:
    """A tensor on another device, in pinned memory where that is the host's; itself where nothing differs."""
    found = tensor.to(device=home, dtype=dtype)
    return found.pin_memory() if tensor.is_cuda and not found.is_cuda else found


def _local(tensor: Any) -> Any:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _pieces(flat: Tensor, where: slice) -> list[Tensor]:
    return list(flat[where].split(MOST_VALUES)) if where.start < where.stop else []


def _masters(flat: Tensor, shapes: list[tuple[str, Tensor]] | None) -> list[tuple[str, Tensor]]:
    """What an optimizer updates of a flat buffer, by name: long pieces, or every weight in its shape."""
    if shapes is None:
        return [(f"flat.{number}", piece) for number, piece in enumerate(flat.split(MOST_VALUES))]
    pieces = _split_like(flat, [weight for _, weight in shapes])
    return [(name, piece) for (name, _), piece in zip(shapes, pieces, strict=True)]


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
