"""Where host and card meet: copies between pinned memory and the card, and what a launch costs the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gnomon.calibrate.kernels import Row
from gnomon.calibrate.lab import Lab
from gnomon.calibrate.timer import Timing, captured, elapsed_s, steadiest

REPEATS = 9
LAUNCHES = 1000
LOOPS = 20_000


def host_copy(lab: Lab, name: str, size: int) -> Row:
    """`to_device` or `to_host`, between pinned memory and the card."""
    torch = lab.torch
    ends = [torch.zeros(size, dtype=torch.uint8, pin_memory=True), torch.zeros(size, dtype=torch.uint8, device="cuda")]
    source, target = ends if name == "to_device" else ends[::-1]
    times = int(np.clip(2e-3 / (size / 2e10 + 5e-6), 1, 100))

    def run() -> None:
        for _ in range(times):
            target.copy_(source, non_blocking=True)

    run()
    torch.cuda.synchronize()
    samples = np.array([elapsed_s(torch, run) for _ in range(REPEATS)]) / times
    return lab.row("host_copy", "int8", Timing.of(samples), bytes=size, kernel=name)


def launch(lab: Lab, name: str, kernels: int) -> Row:
    """Host seconds of calls that each launch one small kernel, or of one replay of a graph of so many."""
    torch, x = lab.torch, lab.random("bf16", (64, 64))[0].clone()
    x.add_(1.0)
    torch.cuda.synchronize()
    graph = captured(torch, lambda _i: x.add_(1.0), kernels)
    calls: dict[str, Callable[[], Any]] = {
        "add": lambda: x.add_(1.0),
        "mm": lambda: torch.mm(x, x),
        "graph": graph.replay,
    }
    times = max(20, LAUNCHES // kernels)
    timing = steadiest(lambda: Timing.of(np.array([_host_s(torch, calls[name], times) for _ in range(REPEATS)])))
    return lab.row("launch", "bf16", timing, batch=kernels, kernel=name)


def host_loop(lab: Lab) -> Row:
    """Seconds of a fixed piece of plain Python, as a scheduler is made of: look-ups, small objects, lists."""
    timing = steadiest(lambda: Timing.of(np.array([_loop_s() for _ in range(REPEATS)])))
    return lab.row("host_loop", "int8", timing)


def _loop_s() -> float:
    start = time.perf_counter()
    table: dict[int, list[int]] = {}
    for i in range(LOOPS):
        row = table.setdefault(i % 97, [])
        row.append(i)
        if len(row) > 50:
            table[i % 97] = [x for x in row if x & 1]
    return time.perf_counter() - start


def _host_s(torch: Any, call: Callable[[], Any], times: int) -> float:
    """Seconds from call to call; the card is faster than the host here, so its work overlaps with them."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken / times
