"""This process among those of a plan, and its groups.

Ranks are ordered pp, dp, cp, tp, tensor parallelism innermost. `copies` are the ranks that hold the same weights, which
reduce gradients together: those of data and context parallelism, and with two copies of the network in one pipeline
(DualPipe) those of both. Of experts, which `ep` neighbouring copies share out, `expert_copies` hold the same. Of both,
states are sharded over `shards`, and `replicas` hold the same shard (HSDP).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from gnomon.errors import InputError
from gnomon.sim.training import schedule
from gnomon.spec.training import TWO_LEVELS
from gnomon.spec.training_job import TrainingJob

AXES = ("pp", "dp", "cp", "tp")
RING, TRADERS = "cp.ring", "cp.traders"
"""Two levels of context parallelism."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This process: its rank, its device, and its groups along each kind of parallelism."""

    rank: int
    world: int
    device: Any
    meshes: Mapping[str, Any] = field(default_factory=dict)
    """By axis, a mesh of one dimension. Empty for a single process without collectives."""

    def at(self, axis: str) -> int:
        return int(self.meshes[axis].get_local_rank()) if axis in self.meshes else 0

    def size(self, axis: str) -> int:
        return int(self.meshes[axis].size()) if axis in self.meshes else 1

    def group(self, axis: str) -> Any:
        return self.meshes[axis].get_group()

    def mesh(self, axis: str) -> Any:
        return self.meshes[axis]

    def sharded(self, axis: str) -> Any:
        """The mesh that FSDP shards over: of two dimensions where there are replicas."""
        return self.meshes.get(f"{axis}.hybrid", self.meshes[axis])

    def shards(self, axis: str) -> str:
        """The axis of those that share states out."""
        return f"{axis}.shards" if f"{axis}.shards" in self.meshes else axis


@contextmanager
def joined(job: TrainingJob, device: str) -> Iterator[Place]:
    """Join the plan's process group; on exit, destroy it where it was created here."""
    ranks = job.strategy.ranks
    known = dist.is_initialized()
    where = _device(device)
    if not known and ranks > 1:
        _init_group(ranks, where)
    try:
        yield Place(rank=0, world=1, device=where) if ranks == 1 else _place(job, where)
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


def _place(job: TrainingJob, device: Any) -> Place:
    world = dist.get_world_size()
    if world != job.strategy.ranks:
        raise _wrong_number(job.strategy.ranks, world)
    return Place(rank=dist.get_rank(), world=world, device=device, meshes=_meshes(job, device))


def _meshes(job: TrainingJob, device: Any) -> dict[str, Any]:
    strategy = job.strategy
    ranks = np.arange(strategy.ranks).reshape(strategy.pp, strategy.dp, strategy.cp, strategy.tp)
    base = _mesh(device, ranks, AXES)
    found = {axis: base[axis] for axis in AXES}
    if strategy.cp > 1 and job.recipe.cp_comm == TWO_LEVELS:
        levels = ranks.reshape(strategy.pp * strategy.dp, -1, job.recipe.cp_a2a, strategy.tp)
        two = _mesh(device, levels, ("outer", RING, TRADERS, "inner"))
        found |= {axis: two[axis] for axis in (RING, TRADERS)}
    held = _holders(ranks, job)
    if held.shape[1] == strategy.dp:
        found["copies"] = found["dp"]
    else:
        mesh = _mesh(device, held, ("held", "copies", "tp"))
        found |= {axis: mesh[axis] for axis in ("copies", "tp")}  # of one mesh, as FSDP beside DTensor needs them
    if strategy.ep > 1:
        shared = held.reshape(held.shape[0], -1, strategy.ep, strategy.tp)
        experts = _mesh(device, shared, ("held", "expert_copies", "ep", "tp"))
        found |= {axis: experts[axis] for axis in ("expert_copies", "ep")}
    if replicas(job) > 1:
        for axis in ("copies", "expert_copies") if strategy.ep > 1 else ("copies",):
            found |= _hybrid(axis, held, job, device)
    return found


def replicas(job: TrainingJob) -> int:
    """Ranks that hold the same shard: one where all copies share states out."""
    dp, shards = job.strategy.dp, job.recipe.dp_shard
    return dp // shards if job.recipe.zero and shards and dp > 1 else 1


def _hybrid(axis: str, held: Any, job: TrainingJob, device: Any) -> dict[str, Any]:
    """The two dimensions of an axis, and both as one mesh, as FSDP takes them."""
    between = (job.strategy.ep if axis == "expert_copies" else 1) * job.strategy.tp
    names, inner = (f"{axis}.replicas", f"{axis}.shards"), "tp" if axis == "copies" else "between"
    mesh = _mesh(device, held.reshape(held.shape[0], replicas(job), -1, between), ("held", *names, inner))
    found = {name: mesh[name] for name in names} | {f"{axis}.hybrid": mesh[names]}
    return found | ({"tp": mesh["tp"]} if inner == "tp" else {})


def _holders(ranks: Any, job: TrainingJob) -> Any:
    """Ranks as [stages that a rank holds, ranks that hold them, tensor-parallel part], replicas outermost."""
    (pp, dp, cp, tp), whole = ranks.shape, replicas(job)
    if pp > 1 and schedule(job.recipe.schedule).placement.copies == 2:
        ranks = np.stack([ranks[: pp // 2], ranks[pp // 2 :][::-1]], axis=1)
    sides = ranks.reshape(ranks.shape[0], -1, whole, dp // whole, cp, tp)
    return sides.swapaxes(1, 2).reshape(ranks.shape[0], -1, tp)


def _mesh(device: Any, ranks: Any, names: tuple[str, ...]) -> Any:
    return _known_mesh(dist.group.WORLD, device.type, ranks.shape, tuple(ranks.flatten().tolist()), names)


@cache
def _known_mesh(world: Any, device: str, shape: tuple[int, ...], ranks: tuple[int, ...], names: tuple[str, ...]) -> Any:
    """Groups cost connections and threads: plans that one process group runs after another share them."""
    return DeviceMesh(device, torch.tensor(ranks).reshape(shape), mesh_dim_names=names)


def _wrong_number(needed: int, found: int) -> InputError:
    hint = f"Start it with torchrun --nproc-per-node {needed}."
    return InputError(f"the plan needs {needed} processes, not {found}", where="strategy", hint=hint)
