"""Timing hygiene: captured in a graph, buffers rotated past L2, random data, medians and spread."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnomon.spec.workload import Floats

TARGET_S = 2e-3
"""A graph holds about this much work, so that one replay is far longer than its launch."""
REPLAYS = 7
ROTATED_BYTES = 160e6
"""Operands that a model would find cold take turns over at least this much memory, past any L2."""
MAX_COPIES = 64
STEADY = 0.05
"""Replays that spread more than this (middle half over median) are timed again."""
TRIES = 3
FULL = 0.97
"""A clock below this share of the highest has given way."""
COOL_S, REST_S = 0.06, 0.02
"""Rests after which a card is at its full clock again: once, and between replays."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, the relative spread of the replays, and the clock meanwhile where it was watched."""

    seconds: float
    spread: float
    sm_hz: float = 0.0

    @classmethod
    def of(cls, samples: Floats, sm_hz: float = 0.0) -> Timing:
        median = float(np.median(samples))
        return cls(median, float((np.quantile(samples, 0.75) - np.quantile(samples, 0.25)) / median), sm_hz)


def copies_for(nbytes: float) -> int:
    """How many buffers of a size to take turns with."""
    return int(min(MAX_COPIES, max(1, np.ceil(ROTATED_BYTES / max(nbytes, 1)))))


def elapsed_s(torch: Any, run: Callable[[], Any], meanwhile: Callable[[], Any] = lambda: None) -> float:
    """Device seconds of what `run` launches; `meanwhile` is called while it is under way."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    meanwhile()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def captured(torch: Any, call: Callable[[int], Any], repeats: int, copies: int = 1, stream: Any = None) -> Any:
    """So many calls as one graph, `i` running over the copies of their operands."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(repeats):
            call(i % copies)
    return graph


def time_call(
    torch: Any,
    call: Callable[[int], Any],
    copies: int = 1,
    *,
    clock: Callable[[], float] | None = None,
    full_hz: float = 0.0,
) -> Timing:
    """Device time of `call(i)`, without launch; `i` runs over the copies of its operands.

    `clock` reads the card's clock. Where it is below `full_hz`, heavy work just before, or this work itself, met the
    power limit: it is timed again with rests between replays, as a burst.
    """
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for i in range(3):
            call(i % copies)
        side.synchronize()
        once = min(elapsed_s(torch, lambda: call(0)) for _ in range(2))
    repeats = int(np.clip(np.ceil(TARGET_S / max(once, 1e-6)), min(copies, 16), 400))
    graph = captured(torch, call, repeats, copies, side)
    graph.replay()
    torch.cuda.synchronize()
    found = steadiest(lambda: _replays(torch, graph, repeats, clock))
    if clock is None or found.sm_hz >= FULL * full_hz:
        return found
    time.sleep(COOL_S)
    rested = _replays(torch, graph, repeats, clock, REST_S)
    return max(found, rested, key=lambda timing: timing.sm_hz)


def _replays(torch: Any, graph: Any, repeats: int, clock: Callable[[], float] | None, rest_s: float = 0.0) -> Timing:
    hz: list[float] = []
    samples = []
    for _ in range(REPLAYS):
        if rest_s:
            time.sleep(rest_s)
        samples.append(elapsed_s(torch, graph.replay, lambda: hz.append(clock()) if clock else None))
    return Timing.of(np.array(samples) / repeats, float(np.median(hz)) if hz else 0.0)


def steadiest(measure: Callable[[], Timing]) -> Timing:
    """Measure again while replays disagree; the steadiest of a few tries."""
    best = measure()
    for _ in range(TRIES - 1):
        if best.spread <= STEADY:
            break
        best = min(best, measure(), key=lambda timing: timing.spread)
    return best


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
