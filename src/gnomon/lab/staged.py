"""Layers that come from files or pageable memory by way of pinned buffers, stage after stage or all at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, Protocol

from gnomon.lab.bench import Bench
from gnomon.lab.hosted import read_whole

GROUP = 128
"""Weights that share a scale."""
MIDDLE, LARGEST = 8, 7
RING, SLOTS = 3, 2
PROBES = 3


class Source(Protocol):
    """Layers as bytes."""

    count: int
    nbytes: int

    def read(self, index: int, buffer: Any) -> None: ...


class Files:
    """One file per layer, read from the disk and not from the cache of files."""

    def __init__(self, folder: Path, layers: Iterable[Any]) -> None:
        self.count = self.nbytes = 0
        self._folder = folder
        for data in layers:
            with self._path(self.count).open("wb") as out:
                out.write(memoryview(data.numpy()))
                out.flush()
                os.fsync(out.fileno())
                os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.count, self.nbytes = self.count + 1, data.numel()

    def _path(self, index: int) -> Path:
        return self._folder / f"{index}.layer"

    def read(self, index: int, buffer: Any) -> None:
        read_whole(self._path(index), memoryview(buffer.numpy()), dropped=True)


class Pageable:
    """Layers in ordinary host memory."""

    def __init__(self, layers: list[Any]) -> None:
        self._layers, self.count, self.nbytes = layers, len(layers), layers[0].numel()

    def read(self, index: int, buffer: Any) -> None:
        buffer.copy_(self._layers[index])


def serial(bench: Bench, source: Source) -> Iterator[Any]:
    """A layer's bytes on the GPU: read, copied and used before the next is read."""
    buffer = bench.pinned(source.nbytes, bench.torch.uint8)
    slot = bench.empty(source.nbytes, dtype=bench.torch.uint8)
    while True:
        for index in range(source.count):
            source.read(index, buffer)
            slot.copy_(buffer, non_blocking=True)
            bench.idle()
            yield slot
            bench.idle()


class Pipelined:
    """A thread reads ahead into a ring of pinned buffers, a stream copies ahead of the compute."""

    def __init__(self, bench: Bench, source: Source) -> None:
        torch = bench.torch
        self.bench, self.source, self._copies = bench, source, bench.stream()
        self._slots = [bench.empty(source.nbytes, dtype=torch.uint8) for _ in range(SLOTS)]
        self._free: Queue[Any] = Queue()
        for _ in range(RING):
            self._free.put(bench.pinned(source.nbytes, torch.uint8))
        self._reader = ThreadPoolExecutor(1)
        self._read: list[Future[Any]] = []
        self._sent: list[tuple[Any, Any]] = []
        self._arrived: list[Any] = [None] * SLOTS
        self._next = 0

    def each(self) -> Iterator[Any]:
        """The bytes of each layer in turn, endlessly. What is yielded may be used until the next is asked for."""
        for _ in range(RING - 1):
            self._ahead()
        slot = 0
        self._fetch(slot)
        while True:
            self.bench.wait(self._arrived[slot])
            yield self._slots[slot]
            slot = (slot + 1) % SLOTS
            self._fetch(slot)

    def close(self) -> None:
        """Let the reader end what it began."""
        self._reader.shutdown(cancel_futures=True)

    def _ahead(self) -> None:
        self._read.append(self._reader.submit(self._fill, self._next))
        self._next = (self._next + 1) % self.source.count

    def _fill(self, index: int) -> Any:
        buffer = self._free.get()
        self.source.read(index, buffer)
        return buffer

    def _fetch(self, slot: int) -> None:
        buffer = self._read.pop(0).result()
        released = self.bench.recorded()
        with self.bench.within(self._copies):
            self.bench.wait(released)
            self._slots[slot].copy_(buffer, non_blocking=True)
            self._arrived[slot] = self.bench.recorded()
        self._sent.append((buffer, self._arrived[slot]))
        if len(self._sent) > 1:
            earlier, done = self._sent.pop(0)
            done.synchronize()
            self._free.put(earlier)
        self._ahead()


def packed(torch: Any, flat: Any) -> Any:
    """Weights rounded to four bits: two halves of a group share bytes, then the scales in bf16."""
    groups = flat.float().view(-1, GROUP)
    scales = (groups.abs().amax(1, keepdim=True) / LARGEST).clamp(min=1e-8).to(torch.bfloat16)
    codes = (torch.round(groups / scales.float()).clamp(-MIDDLE, LARGEST) + MIDDLE).to(torch.uint8)
    low, high = codes.split(GROUP // 2, 1)
    return torch.cat([(low | (high << 4)).flatten(), scales.view(torch.uint8).flatten()])


def unpacked(torch: Any, data: Any) -> Any:
    """The weights of four-bit bytes, in bf16, on the device of the bytes."""
    groups = data.numel() // (GROUP // 2 + 2)
    codes, scales = data.split([groups * GROUP // 2, 2 * groups])
    codes = codes.view(groups, GROUP // 2)
    found = torch.empty(groups, GROUP, dtype=torch.bfloat16, device=data.device)
    found[:, : GROUP // 2] = codes & 15
    found[:, GROUP // 2 :] = codes >> 4
    return found.sub_(MIDDLE).mul_(scales.view(torch.bfloat16).view(groups, 1)).flatten()


def read_rate(bench: Bench, source: Source) -> float:
    """Bytes per second that layers are read with into a pinned buffer, alone."""
    buffer, best = bench.pinned(source.nbytes, bench.torch.uint8), 0.0
    for index in range(min(PROBES, source.count)):
        start = time.perf_counter()
        source.read(index, buffer)
        best = max(best, source.nbytes / (time.perf_counter() - start))
    return best
