"""Checkpoints of a training loop: synchronous, asynchronous (training waits for the copy), or lazy.

The state is copied into pinned host memory and written from there by threads. `Snapshots` owns that memory; a
buffer is reused only when its file is written. What training waits for is measured, by cause.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnomon.errors import CalibrationError, InputError
from gnomon.lab.bench import Bench

CHUNK_BYTES = 1 << 28
"""A power of two, since PyTorch rounds pinned memory up to one."""
SMALL_BYTES = 1 << 20
"""Tensors below this are gathered on the device and copied as one: each copy costs the host microseconds."""
WRITERS = 4
JUNK = 0xA5
MODES = ("none", "synchronous", "asynchronous", "lazy")


@dataclass(slots=True)
class Blocked:
    """Seconds that training waited in one iteration, by cause."""

    queue_s: float = 0.0
    """While the host queued the copies."""
    buffer_s: float = 0.0
    """For a free host buffer, whose previous file is not written yet."""
    copy_s: float = 0.0
    write_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.queue_s + self.buffer_s + self.copy_s + self.write_s


def flat_bytes(torch: Any, tensor: Any) -> Any:
    return tensor.detach().view(-1).view(torch.uint8)


def laid_out(tensors: list[Any]) -> list[Any]:
    """Tensors in file order: large ones first."""
    return sorted(tensors, key=lambda tensor: tensor.numel() * tensor.element_size() < SMALL_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRun:
    """The copies of a checkpoint, reused while the tensors' addresses are unchanged."""

    places: list[int]
    """Addresses of the tensors."""
    small: list[Any]
    gathered: Any
    """Device memory for the small ones together."""
    sources: list[Any]
    targets: list[Any]


class Snapshot:
    """Host memory of one checkpoint and the file it goes to."""

    def __init__(self, bench: Bench, nbytes: int, chunk_bytes: int, path: Path) -> None:
        sizes = [min(chunk_bytes, nbytes - at) for at in range(0, nbytes, chunk_bytes)]
        self.chunks = [bench.pinned(size, bench.torch.uint8) for size in sizes]
        self.chunk_bytes, self.path = chunk_bytes, path
        self.written: Future[None] | None = None
        self.plan: CheckpointRun | None = None

    def prepare(self, torch: Any, tensors: list[Any]) -> CheckpointRun:
        """The copies of these tensors, rebuilt only when their addresses change."""
        places = [tensor.data_ptr() for tensor in tensors]
        if self.plan is None or self.plan.places != places:
            self.plan = self._planned(torch, tensors, places)
        return self.plan

    def _planned(self, torch: Any, tensors: list[Any], places: list[int]) -> CheckpointRun:
        flat = [flat_bytes(torch, tensor) for tensor in laid_out(tensors)]
        large = [source for source in flat if source.numel() >= SMALL_BYTES]
        small = flat[len(large) :]
        room = sum(source.numel() for source in small)
        gathered = torch.empty(room, dtype=torch.uint8, device=flat[0].device)
        sources, targets, at = [], [], 0
        for source in [*large, gathered]:
            done = 0
            while done < source.numel():
                index, within = divmod(at, self.chunk_bytes)
                count = min(source.numel() - done, self.chunk_bytes - within)
                targets.append(self.chunks[index][within : within + count])
                sources.append(source[done : done + count])
                done, at = done + count, at + count
        return CheckpointRun(places=places, small=small, gathered=gathered, sources=sources, targets=targets)

    def copy_from(self, torch: Any, plan: CheckpointRun) -> None:
        """Queue the copies on the current stream."""
        if plan.small:
            torch.cat(plan.small, out=plan.gathered)
        torch._foreach_copy_(plan.targets, plan.sources, non_blocking=True)

    def write(self, pool: ThreadPoolExecutor) -> None:
        """Write the file by several threads, and fsync it."""
        file = os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            parts = enumerate(self.chunks)
            list(pool.map(lambda part: _write(file, part[1].numpy(), part[0] * self.chunk_bytes), parts))
            os.fsync(file)
        finally:
            os.close(file)

    def wait(self) -> None:
        """Wait until the file is written, if one is being written."""
        try:
            if self.written is not None:
                self.written.result()
        except OSError as failure:
            reason = failure.strerror or failure
            raise CalibrationError(f"the checkpoint cannot be written: {reason}", where=str(self.path)) from None

    def differing(self, torch: Any, tensors: list[Any]) -> int:
        """Bytes of the file that differ from the tensors. Overwrites the buffer."""
        count, buffer = 0, self.chunks[0]
        with self.path.open("rb", buffering=0) as file:
            for tensor in laid_out(tensors):
                source = flat_bytes(torch, tensor)
                for done in range(0, source.numel(), buffer.numel()):
                    part = source[done : done + buffer.numel()]
                    read = _read(file, buffer[: part.numel()].numpy())
                    same = buffer[:read].to(part.device) == part[:read]
                    count += part.numel() - int(same.sum())
            return count + len(file.read(1))


def _write(file: int, data: Any, at: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(file, view, at)
        view, at = view[count:], at + count


def _read(file: Any, into: Any) -> int:
    """Bytes read into a buffer, until it is full or the file ends."""
    view, done = memoryview(into), 0
    while count := file.readinto(view[done:]):
        done += count
    return done


class Snapshots:
    """Checkpoints round-robin over a few buffers, written in the background."""

    def __init__(self, bench: Bench, nbytes: int, buffers: int, folder: Path, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.bench = bench
        self._pool, self._queue = ThreadPoolExecutor(WRITERS), ThreadPoolExecutor(1)
        self.all = [Snapshot(bench, nbytes, chunk_bytes, folder / f"checkpoint-{i}") for i in range(buffers)]
        self._turn = 0
        self.write_s: list[float] = []

    def prepare(self, tensors: list[Any]) -> None:
        """Plan the copies of these tensors before the first checkpoint."""
        for snapshot in self.all:
            snapshot.prepare(self.bench.torch, tensors)

    def next(self) -> Snapshot:
        """The next buffer; waits until its file is written."""
        found = self.all[self._turn % len(self.all)]
        self._turn += 1
        found.wait()
        return found

    def start_writing(self, snapshot: Snapshot, copied: Any) -> None:
        """Write in the background, once the copy is done; one file after another."""
        snapshot.written = self._queue.submit(self._write, snapshot, copied)

    def _write(self, snapshot: Snapshot, copied: Any) -> None:
        copied.synchronize()
        start = time.perf_counter()
        snapshot.write(self._pool)
        self.write_s.append(time.perf_counter() - start)

    def reset(self) -> None:
        """Delete files and overwrite buffers of an earlier run, so that a check cannot pass by them."""
        self.drain()
        self.write_s.clear()
        for snapshot in self.all:
            snapshot.path.unlink(missing_ok=True)
            snapshot.plan = None
            for chunk in snapshot.chunks:
                chunk.fill_(JUNK)

    def drain(self) -> None:
        for snapshot in self.all:
            snapshot.wait()

    def close(self) -> None:
        self._queue.shutdown()
        self._pool.shutdown()
        for snapshot in self.all:
            snapshot.path.unlink(missing_ok=True)


@dataclass(slots=True, kw_only=True)
class Checkpointed:
    """One mode of checkpointing around a training iteration."""

    bench: Bench
    mode: str
    snapshots: Snapshots
    stream: Any
    _copied: Any = None
    blocked: Blocked = field(default_factory=Blocked)

    def request(self, tensors: list[Any]) -> Snapshot:
        """Checkpoint these tensors, which must not change until `before_update`."""
        bench, self.blocked = self.bench, Blocked()
        start = time.perf_counter()
        snapshot = self.snapshots.next()
        self.blocked.buffer_s = time.perf_counter() - start
        start, ready = time.perf_counter(), bench.recorded()
        plan = snapshot.prepare(bench.torch, tensors)
        with bench.within(self.stream):
            bench.wait(ready)
            snapshot.copy_from(bench.torch, plan)
            self._copied = bench.recorded()
        self.blocked.queue_s = time.perf_counter() - start
        if self.mode != "lazy":
            self._wait_for_copy()
        self.snapshots.start_writing(snapshot, self._copied)
        if self.mode == "synchronous":
            start = time.perf_counter()
            self.snapshots.drain()
            self.blocked.write_s = time.perf_counter() - start
        return snapshot

    def before_update(self) -> None:
        """Wait for a copy that is still in flight after the backward pass."""
        if self._copied is not None:
            self._wait_for_copy()
            self._copied = None

    def _wait_for_copy(self) -> None:
        start = time.perf_counter()
        self._copied.synchronize()
        self.blocked.copy_s += time.perf_counter() - start


def check_disk(folder: Path, needed: int) -> None:
    """Raise InputError where the disk lacks space; a disk that reports no size is not checked."""
    total, _, free = shutil.disk_usage(folder)
    if total and free < needed:
        hint = "Give fewer parameters or buffers, or set TMPDIR to a larger disk."
        raise InputError(f"checkpoints need {needed:,} bytes, and {free:,} are free", where=str(folder), hint=hint)


def state_of(model: Any, optimizer: Any) -> Iterator[Any]:
    """Weights and the optimizer's states, in a fixed order."""
    for weight in model.parameters():
        yield weight
        for _, value in sorted(optimizer.state[weight].items()):
            yield value
