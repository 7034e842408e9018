"""Timing hygiene: captured in a graph, buffers rotated past L2, random data, medians and spread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

TARGET_S = 2e-3
"""A graph holds about this much work, so that one replay is far longer than its launch."""
REPLAYS = 7
ROTATED_BYTES = 160e6
"""Operands that a model would find cold take turns over at least this much memory, past any L2."""
MAX_COPIES = 64


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, and the relative spread of the replays."""

    seconds: float
    spread: float


def copies_for(nbytes: float) -> int:
    """How many buffers of a size to take turns with."""
    return int(min(MAX_COPIES, max(1, np.ceil(ROTATED_BYTES / max(nbytes, 1)))))


def _elapsed_s(torch: Any, run: Callable[[], None]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def time_call(torch: Any, call: Callable[[int], None], copies: int = 1) -> Timing:
    """Device time of `call(i)`, without launch; `i` runs over the copies of its operands."""
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for i in range(3):
            call(i % copies)
        side.synchronize()
        once = min(_elapsed_s(torch, lambda: call(0)) for _ in range(2))
    repeats = int(np.clip(np.ceil(TARGET_S / max(once, 1e-6)), min(copies, 16), 400))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        for i in range(repeats):
            call(i % copies)
    graph.replay()
    torch.cuda.synchronize()
    samples = np.array([_elapsed_s(torch, graph.replay) for _ in range(REPLAYS)]) / repeats
    median = float(np.median(samples))
    return Timing(median, float((np.quantile(samples, 0.75) - np.quantile(samples, 0.25)) / median))


class PowerMeter:
    """Board power, clock and energy through the driver's own library; no package needed."""

    def __init__(self, index: int = 0) -> None:
        self._lib = ctypes.CDLL("libnvidia-ml.so.1")
        self._lib.nvmlInit_v2()
        self._handle = ctypes.c_void_p()
        self._lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self._handle))

    def _read(self, function: str, kind: Any, *arguments: Any) -> int:
        value = kind()
        getattr(self._lib, function)(self._handle, *arguments, ctypes.byref(value))
        return int(value.value)

    @property
    def watts(self) -> float:
        return self._read("nvmlDeviceGetPowerUsage", ctypes.c_uint) / 1e3

    @property
    def joules(self) -> float:
        return self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong) / 1e3

    @property
    def sm_hz(self) -> float:
        return self._read("nvmlDeviceGetClockInfo", ctypes.c_uint, ctypes.c_int(1)) * 1e6
