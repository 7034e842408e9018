"""Ranks of a job as processes on this machine's CPU, for checks that need several GPUs: torch.distributed with gloo."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

LIMIT_S = 120
"""Seconds that a collective may wait."""


def run_ranks(world: int, task: Callable[..., Any], *given: Any) -> list[Any]:
    """`task(rank, world, *given)` on every rank of a process group; their results by rank. `task` is a function of a
    module, and an error in one rank ends all."""
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as name:
        processes.spawn(_rank, args=(world, name, task, given), nprocs=world)
        return [pickle.loads(Path(name, str(rank)).read_bytes()) for rank in range(world)]


def _rank(rank: int, world: int, folder: str, task: Callable[..., Any], given: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=LIMIT_S))
    try:
        Path(folder, str(rank)).write_bytes(pickle.dumps(task(rank, world, *given)))
    finally:
        dist.destroy_process_group()
