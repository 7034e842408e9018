"""Training of decoder blocks whose Adam states are kept outside the GPU: in host memory or in files.

Weights and gradients are bf16 on the GPU, states fp32 outside. Modes of `HostedTraining` differ in when gradients are
copied and when a worker on the CPU updates; all but the delayed update leave the same numbers behind.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any, Protocol

from gnomon.lab import blocks
from gnomon.lab.bench import Bench
from gnomon.lab.offload import STATES, adamw

AFTER, COPIED, UPDATED, DELAYED = (
    "after the backward",
    "gradients copied during the backward",
    "updates during the backward",
    "updates delayed by a step",
)
STATE_BYTES = 4 * STATES
BUFFERS = 3
"""Blocks of states in host memory at once where files keep them: one is read, one updated, one written."""


class States(Protocol):
    """Adam states of blocks; `weights16` has their new weights, pinned."""

    weights16: list[Any]

    def expect(self, block: int) -> None:
        """An update of this block comes after those expected before."""

    def update(self, block: int, gradient: Any, step: int) -> None: ...
    def finish(self) -> None:
        """Wait until all updates are where they are kept."""


@dataclass(slots=True)
class _Update:
    """The CPU's part of an update: widen the gradient, Adam, narrow the weights."""

    bench: Bench
    gradient: Any

    def run(self, states: list[Any], gradient: Any, weights16: Any, step: int) -> None:
        self.gradient.copy_(gradient)
        adamw(self.bench, states, self.gradient, step)
        weights16.copy_(states[0])


class HostStates:
    """In host memory."""

    def __init__(self, bench: Bench, weights: list[Any]) -> None:
        torch = bench.torch
        self.weights16 = [bench.pinned_copy(flat) for flat in weights]
        self.states = [[flat.float().cpu(), *_zeros(torch, flat.numel())] for flat in weights]
        self._update = _Update(bench, torch.empty(weights[0].numel(), dtype=torch.float32))

    def expect(self, block: int) -> None: ...

    def update(self, block: int, gradient: Any, step: int) -> None:
        self._update.run(self.states[block], gradient, self.weights16[block], step)

    def finish(self) -> None: ...


class FileStates:
    """In files, read ahead and written behind the updates; a write counts when `fsync` returns, and is read again from
    the disk and not from the cache of files."""

    def __init__(self, bench: Bench, weights: list[Any], folder: Path) -> None:
        torch = bench.torch
        self.weights16 = [bench.pinned_copy(flat) for flat in weights]
        self._size = weights[0].numel()
        self._files = [folder / f"{block}.states" for block in range(len(weights))]
        self._update = _Update(bench, torch.empty(self._size, dtype=torch.float32))
        self._buffers: Queue[Any] = Queue()
        self._reader, self._writer = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self._coming: dict[int, Future[Any]] = {}
        self._leaving: dict[int, Future[None]] = {}
        for file, flat in zip(self._files, weights, strict=True):
            _write(file, torch.cat([flat.float().cpu(), *_zeros(torch, self._size)]))
        for _ in range(BUFFERS):
            self._buffers.put(torch.empty(STATES * self._size, dtype=torch.float32))

    def expect(self, block: int) -> None:
        self._coming[block] = self._reader.submit(self._read, block, self._leaving.get(block))

    def update(self, block: int, gradient: Any, step: int) -> None:
        buffer = self._coming.pop(block).result()
        self._update.run(list(buffer.split(self._size)), gradient, self.weights16[block], step)
        self._leaving[block] = self._writer.submit(self._leave, block, buffer)

    def finish(self) -> None:
        for written in self._leaving.values():
            written.result()

    def close(self) -> None:
        self._reader.shutdown()
        self._writer.shutdown()

    @property
    def states(self) -> list[list[Any]]:
        """What the files hold."""
        self.finish()
        found = []
        for file in self._files:
            buffer = self._update.gradient.new_empty(STATES * self._size)
            _read(file, buffer)
            found.append(list(buffer.split(self._size)))
        return found

    def _read(self, block: int, written: Future[None] | None) -> Any:
        if written is not None:
            written.result()
        buffer = self._buffers.get()
        _read(self._files[block], buffer)
        return buffer

    def _leave(self, block: int, buffer: Any) -> None:
        _write(self._files[block], buffer)
        self._buffers.put(buffer)


class HostedTraining:
    """Steps of forward, backward and update; `mode` is one of those above."""

    def __init__(self, bench: Bench, sizes: Mapping[str, int], states: States, weights: list[Any], mode: str) -> None:
        torch = bench.torch
        self.bench, self.states, self.mode, self.heads = bench, states, mode, sizes["heads"]
        self.weights = [flat.to(bench.device, copy=True).requires_grad_() for flat in weights]
        self.x = blocks.inputs(bench, sizes["sequences"], sizes["tokens"], sizes["width"])
        self.wanted = self.x.roll(1, 1)
        self.copies, self.up = bench.stream(), bench.stream()
        rings = 2 if mode == DELAYED else 1
        count, size = len(weights), weights[0].numel()
        self._gradients = [[bench.pinned(size, torch.bfloat16) for _ in range(count)] for _ in range(rings)]
        self._arrived: list[list[Any]] = [[None] * count for _ in range(rings)]
        self._worker = ThreadPoolExecutor(1)
        self._jobs: list[Future[None]] = []
        self.steps = 0
        if mode != AFTER:
            for block, flat in enumerate(self.weights):
                flat.register_post_accumulate_grad_hook(self._hook(block))

    @property
    def _ring(self) -> int:
        return self.steps % len(self._gradients)

    def _hook(self, block: int) -> Callable[[Any], None]:
        def copied(flat: Any) -> None:
            self._copy(block, flat)
            if self.mode == UPDATED:
                self._submit(block, self._ring, self.steps)

        return copied

    def _copy(self, block: int, flat: Any) -> None:
        """Send a gradient to the host and drop it."""
        gradient, flat.grad = flat.grad, None
        ready = self.bench.recorded()
        with self.bench.within(self.copies):
            self.bench.wait(ready)
            self._gradients[self._ring][block].copy_(gradient, non_blocking=True)
            self._arrived[self._ring][block] = self.bench.recorded()
        if self.bench.timed and self.copies is not None:
            gradient.record_stream(self.copies)

    def _submit(self, block: int, ring: int, step: int) -> None:
        self.states.expect(block)
        self._jobs.append(self._worker.submit(self._update, block, ring, step))

    def _update(self, block: int, ring: int, step: int) -> None:
        with self.bench.torch.no_grad():
            self._arrived[ring][block].synchronize()
            self.states.update(block, self._gradients[ring][block], step)
            if self.mode != DELAYED:
                self._send(block)

    def _send(self, block: int) -> None:
        with self.bench.within(self.up):
            self.weights[block].data.copy_(self.states.weights16[block], non_blocking=True)

    def forward_backward(self) -> Any:
        torch = self.bench.torch
        from torch.utils.checkpoint import checkpoint

        x = self.x
        for flat in self.weights:
            x = checkpoint(blocks.forward, torch, x, flat, self.heads, use_reentrant=False)
        loss = (x - self.wanted).float().square().mean()
        loss.backward()
        return loss.detach()

    def step(self) -> Any:
        """One step, from idle to idle; with a delayed update the gradients wait for the next."""
        order = range(len(self.weights) - 1, -1, -1)
        if self.mode == DELAYED and self.steps:
            for block in order:
                self._submit(block, (self.steps - 1) % 2, self.steps - 1)
        loss = self.forward_backward()
        if self.mode in (AFTER, COPIED):
            if self.mode == COPIED:
                self.bench.idle()
            for block in order:
                if self.mode == AFTER:
                    self._copy(block, self.weights[block])
                self._submit(block, self._ring, self.steps)
        self._join()
        if self.mode == DELAYED and self.steps:
            for block in order:
                self._send(block)
        self.bench.synchronize()
        self.steps += 1
        return loss

    def _join(self) -> None:
        self.bench.idle()
        for job in self._jobs:
            job.result()
        self._jobs.clear()
        self.states.finish()

    def close(self) -> None:
        self._worker.shutdown()


class Resident:
    """The same training with states on the GPU."""

    def __init__(self, bench: Bench, sizes: Mapping[str, int], weights: list[Any]) -> None:
        torch = bench.torch
        self.training = HostedTraining(bench, sizes, _Nowhere(), weights, AFTER)
        self.states = [
            [flat.to(bench.device).float().clone(), *_zeros(torch, flat.numel(), bench.device)] for flat in weights
        ]
        self.steps = 0

    def step(self) -> Any:
        loss, bench = self.training.forward_backward(), self.training.bench
        with bench.torch.no_grad():
            for flat, states in zip(self.training.weights, self.states, strict=True):
                adamw(bench, states, flat.grad.float(), self.steps)
                flat.data.copy_(states[0])
                flat.grad = None
        self.steps += 1
        return loss


class _Nowhere:
    """No states outside the GPU."""

    def __init__(self) -> None:
        self.weights16: list[Any] = []

    def expect(self, block: int) -> None: ...
    def update(self, block: int, gradient: Any, step: int) -> None: ...
    def finish(self) -> None: ...


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for files of states, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="gnomon-lab-") as name:
        yield Path(name)


def update_rate(bench: Bench, size: int, repeats: int = 3) -> dict[str, float]:
    """Parameters per second that the CPU updates, with the gradient widened and the weights narrowed, alone."""
    if not bench.timed:
        return {}
    torch = bench.torch
    host = HostStates(bench, [torch.zeros(size, dtype=torch.bfloat16)])
    gradient = torch.full((size,), 1e-2, dtype=torch.bfloat16)
    host.update(0, gradient, 0)
    took = min(bench.seconds(lambda: host.update(0, gradient, 1)) for _ in range(repeats))
    return {"cpu_update_parameters_s": size / took}


def disk_rates(bench: Bench, folder: Path, size: int) -> dict[str, float]:
    """Bytes per second that a file of so many bytes is written and read with, alone."""
    if not bench.timed:
        return {}
    data, file = bench.torch.ones(size // 4, dtype=bench.torch.float32), folder / "probe"
    took: dict[str, float] = {}
    for name, move in (("disk_write_bytes_s", _write), ("disk_read_bytes_s", _read)):
        start = time.perf_counter()
        move(file, data)
        took[name] = data.numel() * 4 / (time.perf_counter() - start)
    file.unlink()
    return took


def _zeros(torch: Any, size: int, device: str = "cpu") -> list[Any]:
    return [torch.zeros(size, dtype=torch.float32, device=device) for _ in range(STATES - 1)]


def _write(file: Path, data: Any) -> None:
    view = memoryview(data.numpy()).cast("B")
    with file.open("r+b" if file.exists() else "wb", buffering=0) as out:
        at = 0
        while at < len(view):
            at += out.write(view[at:])
        os.fsync(out.fileno())
        os.posix_fadvise(out.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(file: Path, data: Any) -> None:
    read_whole(file, memoryview(data.numpy()).cast("B"))


def read_whole(file: Path, view: memoryview, *, dropped: bool = False) -> None:
    """Fill a buffer from a file; `dropped` leaves nothing of it in the cache of files."""
    with file.open("rb", buffering=0) as source:
        at = 0
        while at < len(view):
            got = source.readinto(view[at:])
            if not got:
                raise OSError(f"{file} ends at {at} of {len(view)} bytes")
            at += got
        if dropped:
            os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
