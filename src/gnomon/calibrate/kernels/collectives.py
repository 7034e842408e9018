"""Collectives among the cards of this machine through `torch.distributed`: one process per rank, kept for all sizes.

The timing is the same for every backend: NCCL on cards, Gloo on a CPU where tests run it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Lab, Skipped
from gnomon.calibrate.timer import Timing

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
SAMPLES, TARGET_S = 7, 4e-3
LEAST_S, FASTEST_BYTES_S = 2e-5, 4e11
"""Roughly the time of the fastest collective, from which the number of calls follows."""
WAIT_S = 120.0


def collective(lab: Lab, op: str, ranks: int, size: int) -> Row:
    """One collective of `size` bytes, counted as nccl-tests counts them, among the first `ranks` cards."""
    if lab.group is None:
        lab.group = RankGroup("nccl", lab.torch.cuda.device_count())
    timing = lab.group.measure(op, ranks, size)
    return lab.row(op, "bf16", timing, bytes=size, ranks=ranks, kernel="nccl, no graph")


class RankGroup:
    """Processes, one a rank, that run what they are told together."""

    def __init__(self, backend: str, world: int) -> None:
        import torch.multiprocessing as processes

        context = processes.get_context("spawn")
        self._answers = context.Queue()
        self._orders = [context.Queue() for _ in range(world)]
        arguments = (backend, world, _free_port(), self._answers)
        self._ranks = [
            context.Process(target=_work, args=(rank, *arguments, orders), daemon=True)
            for rank, orders in enumerate(self._orders)
        ]
        for rank in self._ranks:
            rank.start()

    def measure(self, op: str, ranks: int, size: int) -> Timing:
        for orders in self._orders:
            orders.put((op, ranks, size))
        answer = self._answers.get(timeout=WAIT_S)
        if isinstance(answer, str):
            raise Skipped(answer)
        return Timing.of(np.array(answer))

    def close(self) -> None:
        for orders in self._orders:
            orders.put(None)
        for rank in self._ranks:
            rank.join(timeout=10.0)
            if rank.is_alive():
                rank.terminate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _work(rank: int, backend: str, world: int, port: int, answers: Any, orders: Any) -> None:
    import torch
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, rank=rank, world_size=world)
    groups: dict[int, Any] = {}
    while (order := orders.get()) is not None:
        op, ranks, size = order
        if ranks not in groups:  # every rank has to know of every group
            groups[ranks] = dist.new_group(list(range(ranks)))
        if rank >= ranks:
            continue
        try:
            samples: Any = _time(torch, _call(torch, dist, op, groups[ranks], ranks, size, rank, device), size)
        except (RuntimeError, ValueError, AttributeError) as failure:
            samples = f"{op}: {str(failure).splitlines()[0][:160]}"
        if rank == 0:
            answers.put(samples)
    dist.destroy_process_group()


def _call(
    torch: Any, dist: Any, op: str, group: Any, ranks: int, size: int, rank: int, device: Any
) -> Callable[[], Any]:
    """What one rank runs. Bytes are those of the larger side, of all ranks together for the shared ones."""
    count = max(ranks, size // 2 // ranks * ranks)
    whole = torch.randn(count, device=device).to(torch.bfloat16)
    part = whole[: count // ranks].clone()
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(whole), whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "send_recv": lambda: _pass_on(dist, whole, rank, ranks, group),
    }
    return calls[op]


def _pass_on(dist: Any, whole: Any, rank: int, ranks: int, group: Any) -> None:
    """From the first rank to the last; the others have nothing to do."""
    if rank == 0:
        dist.send(whole, ranks - 1, group=group)
    elif rank == ranks - 1:
        dist.recv(whole, 0, group=group)


def _time(torch: Any, call: Callable[[], Any], size: int) -> list[float]:
    """Seconds of a call; how often it is called follows from the size alone, so that all ranks agree."""
    repeats = int(np.clip(TARGET_S / (LEAST_S + size / FASTEST_BYTES_S), 4, 100))
    _settled(torch, call, 3)
    return [_settled(torch, call, repeats) for _ in range(SAMPLES)]


def _settled(torch: Any, call: Callable[[], Any], repeats: int) -> float:
    """Seconds a call from start to end, launched one by one: small ones show the host's launches."""
    cards = torch.cuda.is_available()
    if cards:
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    if cards:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats
