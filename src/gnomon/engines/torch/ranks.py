"""This process in the device mesh. Ranks are ordered pp, dp, tp, tensor parallelism innermost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from gnomon.errors import InputError
from gnomon.spec import Strategy

AXES = ("pp", "dp", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This process: its rank, its device, and its groups along each kind of parallelism."""

    rank: int
    world: int
    device: Any
    mesh: Any
    """pp x dp x tp; None for a single process without collectives."""

    def at(self, axis: str) -> int:
        return 0 if self.mesh is None else int(self.mesh.get_local_rank(axis))

    def size(self, axis: str) -> int:
        return 1 if self.mesh is None else int(self.mesh.shape[AXES.index(axis)])

    def group(self, axis: str) -> Any:
        return self.mesh.get_group(axis)


@contextmanager
def joined(strategy: Strategy, device: str) -> Iterator[Place]:
    """Join the plan's process group; on exit, destroy it where it was created here."""
    alone = strategy.ranks == 1
    known = dist.is_initialized()
    where = _device(device)
    if not known and not alone:
        _init_group(strategy.ranks, where)
    try:
        yield Place(rank=0, world=1, device=where, mesh=None) if alone else _place(strategy, where)
    finally:
        if not known and dist.is_initialized():
            dist.destroy_process_group()


def _device(name: str) -> Any:
    if name == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _init_group(ranks: int, device: Any) -> None:
    how: dict[str, Any] = {"backend": "nccl", "device_id": device} if device.type == "cuda" else {"backend": "gloo"}
    if "RANK" not in os.environ:
        raise _wrong_number(ranks, 1)
    dist.init_process_group(**how)


def _place(strategy: Strategy, device: Any) -> Place:
    world = dist.get_world_size()
    if world != strategy.ranks:
        raise _wrong_number(strategy.ranks, world)
    degrees = (strategy.pp, strategy.dp, strategy.tp)
    mesh = init_device_mesh(device.type, degrees, mesh_dim_names=AXES)
    return Place(rank=dist.get_rank(), world=world, device=device, mesh=mesh)


def _wrong_number(needed: int, found: int) -> InputError:
    hint = f"Start it with torchrun --nproc-per-node {needed}."
    return InputError(f"the plan needs {needed} processes, not {found}", where="strategy", hint=hint)
