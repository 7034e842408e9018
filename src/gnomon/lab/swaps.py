"""A paged KV cache on the GPU and requests that are swapped to pinned host memory: block by block, by contiguous
groups of blocks, or gathered by a kernel first."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gnomon.errors import CalibrationError
from gnomon.lab.bench import SEED, Bench

BLOCKS, GROUPS, GATHERED = "block by block", "groups of blocks", "gathered, one copy"
TOKENS = 16
"""Of a block."""
WORD = 8
"""Bytes of the cache's elements, which nobody computes with."""
PROBE, PROBE_BYTES, PROBES = 2000, 4096, 5
COPIES = "driver_copy_launches_s"
Copy = tuple[Any, Any, Any]
"""Destination, source and bytes: addresses on a GPU, tensors elsewhere."""


def async_copies(bench: Bench) -> Callable[[Iterable[Copy]], None]:
    """Copies issued one by one on the current stream, by the driver: a tensor's own copy takes the host longer."""
    if bench.device != "cuda":

        def plainly(copies: Iterable[Copy]) -> None:
            for to, source, _ in copies:
                to.copy_(source)

        return plainly
    call = ctypes.CDLL("libcuda.so.1").cuMemcpyAsync
    call.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)

    def issued(copies: Iterable[Copy]) -> None:
        stream = bench.torch.cuda.current_stream().cuda_stream
        for to, source, nbytes in copies:
            if code := call(to, source, nbytes, stream):
                raise CalibrationError(f"cuMemcpyAsync of {nbytes} bytes fails with {code}")

    return issued


def planned(bench: Bench, to: Any, source: Any) -> Copy:
    """A copy between contiguous tensors of one size."""
    if bench.device != "cuda":
        return to, source, None
    return to.data_ptr(), source.data_ptr(), to.numel() * to.element_size()


def copy_rate(bench: Bench) -> dict[str, float]:
    """Small copies per second that the driver is given one by one, measured alone; nothing on a CPU."""
    if not bench.timed:
        return {}
    torch = bench.torch
    host, near = bench.pinned(PROBE_BYTES, torch.uint8), bench.empty(PROBE_BYTES, dtype=torch.uint8)
    issue, copies = async_copies(bench), [planned(bench, host, near)] * PROBE
    issue(copies)
    return {COPIES: PROBE / min(bench.seconds(lambda: issue(copies)) for _ in range(PROBES))}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """What requests hold: keys and values of so many layers, in blocks of 16 tokens."""

    layers: int
    blocks: int
    """Of a request."""
    block_bytes: int
    """Of one layer's keys or values."""
    requests: int

    @property
    def planes(self) -> int:
        return 2 * self.layers

    @property
    def request_bytes(self) -> int:
        return self.planes * self.blocks * self.block_bytes


class SwappedCache:
    """The cache, where each request's blocks lie in it by way, and the room of each in host memory."""

    def __init__(self, bench: Bench, shape: CacheShape) -> None:
        torch, words = bench.torch, shape.block_bytes // WORD
        self.bench, self.shape, self._issue = bench, shape, async_copies(bench)
        everything = shape.requests * shape.blocks
        self.near = bench.empty(shape.planes, everything, words, dtype=torch.int64)
        self.near.random_(generator=bench.generator(SEED + 130))
        self.wanted = self.near.clone()
        size = shape.planes * shape.blocks * words
        self.far = [
            bench.pinned(size, torch.int64).view(shape.planes, shape.blocks, words) for _ in range(shape.requests)
        ]
        order = torch.randperm(everything, device=bench.device, generator=bench.generator(SEED + 131))
        self.ids = list(order.split(shape.blocks))
        self.staging = [bench.empty(shape.planes, shape.blocks, words, dtype=torch.int64) for _ in range(2)]
        self.nothing = self.bench.torch.zeros_like(self.staging[0])
        self._plans = {way: [self._pairs(way, one) for one in range(shape.requests)] for way in (BLOCKS, GROUPS)}

    def places(self, way: str, request: int) -> Any:
        """A request's blocks: next to each other in groups, anywhere otherwise."""
        if way == GROUPS:
            first = request * self.shape.blocks
            return self.bench.torch.arange(first, first + self.shape.blocks, device=self.bench.device)
        return self.ids[request]

    def out(self, way: str, request: int) -> None:
        """To host memory, on the current stream."""
        if way == GATHERED:
            self.bench.torch.index_select(self.near, 1, self.ids[request], out=self.staging[0])
            self.far[request].copy_(self.staging[0], non_blocking=True)
        else:
            self._issue(self._plans[way][request][0])

    def back(self, way: str, request: int) -> None:
        """From host memory to the blocks that it had, on the current stream."""
        if way == GATHERED:
            self.staging[1].copy_(self.far[request], non_blocking=True)
            self.near.index_copy_(1, self.ids[request], self.staging[1])
        else:
            self._issue(self._plans[way][request][1])

    def differing_near(self, way: str, request: int) -> int:
        """Words of a request on the GPU that are not as they were."""
        at = self.places(way, request)
        return int((self.near[:, at] != self.wanted[:, at]).sum())

    def differing_far(self, way: str, request: int) -> int:
        """Words of a request in host memory that are not as they were on the GPU."""
        there = self.wanted[:, self.places(way, request)]
        return int((self.far[request].to(there.device) != there).sum())

    def reset(self, way: str, waiting: Iterable[int]) -> None:
        """These requests in host memory alone, all others on the GPU alone."""
        self.near.copy_(self.wanted)
        for one in range(self.shape.requests):
            self.far[one].zero_()
        for one in waiting:
            at = self.places(way, one)
            self.far[one].copy_(self.wanted[:, at])
            self.near[:, at] = 0
        self.bench.synchronize()

    def _pairs(self, way: str, request: int) -> tuple[list[Copy], list[Copy]]:
        """A request's copies out and back."""
        pairs, first = [], request * self.shape.blocks
        ids = self.ids[request].tolist()
        for plane in range(self.shape.planes):
            if way == GROUPS:
                pairs.append((self.far[request][plane], self.near[plane, first : first + self.shape.blocks]))
            else:
                pairs += [(self.far[request][plane, i], self.near[plane, block]) for i, block in enumerate(ids)]
        out = [planned(self.bench, far, near) for far, near in pairs]
        return out, [planned(self.bench, near, far) for far, near in pairs]


class Rotation:
    """Steps of running requests; in each, one that ran is swapped out, and one that waited comes back."""

    def __init__(self, cache: SwappedCache, way: str, step: Callable[[], Any], *, overlapped: bool) -> None:
        bench = cache.bench
        self.cache, self.way, self.step, self.overlapped = cache, way, step, overlapped
        self.bench, self.down, self.up = bench, bench.stream(), bench.stream()
        self.spoils = False
        """Whether what was copied is overwritten where it was, as it may be where blocks are used again."""
        self._left: dict[int, Any] = {}
        self._back: dict[int, Any] = {}

    def run(self, steps: int, first: int = 0) -> None:
        """So many steps; copies under way at the end are waited for by who synchronizes."""
        count = self.cache.shape.requests
        for turn in range(first, first + steps):
            leaving, coming = turn % count, (turn + count // 2) % count
            if self.overlapped:
                self.step()
                self._swap(leaving, coming)
                self.bench.idle()
            else:
                self._out(leaving)
                self._in(coming)
                self.bench.idle()
                self.step()
                self.bench.idle()

    def _swap(self, leaving: int, coming: int) -> None:
        """One leaves once it is back, one comes back once it has left."""
        with self.bench.within(self.down):
            self.bench.wait(self._back.get(leaving))
            self._out(leaving)
            self._left[leaving] = self.bench.recorded()
        with self.bench.within(self.up):
            self.bench.wait(self._left.get(coming))
            self._in(coming)
            self._back[coming] = self.bench.recorded()

    def _out(self, request: int) -> None:
        self.cache.out(self.way, request)
        if self.spoils:
            self.cache.near[:, self.cache.places(self.way, request)] = 0

    def _in(self, request: int) -> None:
        self.cache.back(self.way, request)
        if self.spoils:
            self.cache.far[request].copy_(self.cache.nothing, non_blocking=True)
