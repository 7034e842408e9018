"""The device of an experiment: a GPU with streams, pinned memory and clock, or a CPU for tests.

On the CPU everything runs in order and nothing is timed, so the same code can be checked without a GPU.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from gnomon.calibrate.card import Card
from gnomon.calibrate.timer import REPLAYS, Timing, elapsed_s, time_call
from gnomon.errors import CalibrationError, MissingExtraError
from gnomon.lab.base import LabRun, Tell

SEED = 20261115
AHEAD_CYCLES = 20_000_000
"""Cycles that the GPU is kept busy while calls are queued, some 10 ms."""
QUEUED, QUEUED_SAMPLES, QUEUED_S = 20, 7, 0.03
"""Calls of a sample at most, samples, and seconds of a sample that suffice."""


def untimed(repeats: int = 1, host_bytes: int = 0) -> LabRun:
    """A run on a CPU, whose times mean nothing."""
    return LabRun(seconds=None, spread=None, repeats=repeats, gpu_bytes=0, host_bytes=host_bytes)


def device_run(timing: Timing | None, gpu_bytes: int = 0) -> LabRun:
    """The run of a call that was timed in a CUDA graph."""
    if timing is None:
        return untimed()
    return LabRun(seconds=timing.seconds, spread=timing.spread, repeats=REPLAYS, gpu_bytes=gpu_bytes)


class _Done:
    """An event of a synchronous device."""

    def record(self) -> None: ...
    def synchronize(self) -> None: ...


class Bench:
    """One device. `timed` is false on a CPU, whose times are not reported."""

    def __init__(self, torch: Any, device: str, tell: Tell, card: Card | None = None) -> None:
        self.torch, self.device, self.tell, self.card = torch, device, tell, card
        self.timed = device == "cuda"
        self._clocks: list[float] = []

    def need_triton(self, what: str) -> None:
        """Raise where a kernel would be built for a GPU and Triton is missing; a CPU runs PyTorch's operators instead.
        `what` says what needs it."""
        if self.device == "cuda" and importlib.util.find_spec("triton") is None:
            raise MissingExtraError("triton", "torch", what)

    def stream(self) -> Any:
        return self.torch.cuda.Stream() if self.timed else None

    def within(self, stream: Any) -> AbstractContextManager[Any]:
        return nullcontext() if stream is None else self.torch.cuda.stream(stream)

    def recorded(self) -> Any:
        """An event at this point of the current stream."""
        event = self.torch.cuda.Event() if self.timed else _Done()
        event.record()
        return event

    def wait(self, event: Any) -> None:
        """Make the current stream, not the host, wait for an event, if there is one."""
        if self.timed and event is not None:
            self.torch.cuda.current_stream().wait_event(event)

    def synchronize(self) -> None:
        if self.timed:
            self.torch.cuda.synchronize()

    def idle(self) -> None:
        """Wait for the current stream only."""
        if self.timed:
            self.torch.cuda.current_stream().synchronize()

    @property
    def processors(self) -> int:
        return int(self.torch.cuda.get_device_properties(0).multi_processor_count)

    @property
    def held_bytes(self) -> int:
        return int(self.torch.cuda.memory_allocated())

    def pinned(self, count: int, dtype: Any) -> Any:
        """Pinned host memory."""
        try:
            return self.torch.empty(count, dtype=dtype, pin_memory=self.timed)
        except RuntimeError as failure:
            reason = str(failure).splitlines()[0]
            hint = "Give smaller sizes, or allow more locked memory (ulimit -l)."
            raise CalibrationError(
                f"cannot allocate {count:,} values of pinned host memory: {reason}", hint=hint
            ) from None

    def pinned_copy(self, values: Any) -> Any:
        """A tensor's values in pinned host memory, once they are there."""
        found = self.pinned(values.numel(), values.dtype).view(values.shape)
        return found.copy_(values)

    def empty(self, *shape: int, dtype: Any) -> Any:
        return self.torch.empty(*shape, dtype=dtype, device=self.device)

    def generator(self, seed: int = SEED) -> Any:
        return self.torch.Generator(device=self.device).manual_seed(seed)

    def normal(self, *shape: int, dtype: Any, generator: Any, scale: float = 1.0) -> Any:
        found = self.torch.empty(*shape, dtype=dtype, device=self.device)
        return found.normal_(0.0, scale, generator=generator)

    def release(self) -> None:
        """Return cached memory to the driver."""
        if self.timed:
            self.torch.cuda.empty_cache()

    @contextmanager
    def tf32(self) -> Iterator[None]:
        """GEMMs of fp32 operands on tensor cores."""
        matmul = self.torch.backends.cuda.matmul
        before, matmul.allow_tf32 = matmul.allow_tf32, True
        try:
            yield
        finally:
            matmul.allow_tf32 = before

    @contextmanager
    def peak(self) -> Iterator[Callable[[], int]]:
        """Yields a function that returns the peak bytes on the GPU since."""
        if self.timed:
            self.torch.cuda.synchronize()
            self.torch.cuda.reset_peak_memory_stats()
        yield lambda: int(self.torch.cuda.max_memory_allocated()) if self.timed else 0

    def wall(self, call: Callable[[], Any], repeats: int, *, warm: int = 1, host_bytes: int = 0) -> LabRun:
        """Host seconds of a call, from an idle device to an idle device."""
        with self.peak() as most:
            for _ in range(warm):
                call()
            samples = [self.seconds(call) for _ in range(repeats)]
            return self.measured(samples, most(), host_bytes)

    def seconds(self, call: Callable[[], Any]) -> float:
        self.synchronize()
        start = time.perf_counter()
        call()
        self.synchronize()
        took = time.perf_counter() - start
        self.sample_clock()
        return took

    def sample_clock(self) -> None:
        """Sample the clock; to be called while the GPU is busy, or has just been."""
        if self.card is not None:
            self._clocks.append(self.card.sm_hz)

    @property
    def sm_hz(self) -> float | None:
        """The median of the sampled clocks."""
        return float(np.median(self._clocks)) if self._clocks else None

    def measured(self, samples: list[float], gpu_bytes: int, host_bytes: int = 0) -> LabRun:
        if not self.timed:
            return untimed(len(samples), host_bytes)
        timing = Timing.of(np.maximum(np.array(samples), 1e-9))
        return LabRun(
            seconds=timing.seconds,
            spread=timing.spread,
            repeats=len(samples),
            gpu_bytes=gpu_bytes,
            host_bytes=host_bytes,
            samples_s=tuple(samples),
        )

    def kernel(self, call: Callable[[int], Any], copies: int) -> Timing | None:
        """Device seconds of a call without its launch, operands cold."""
        if not self.timed:
            for i in range(copies):
                call(i)
            return None
        card = self.card
        if card is None:
            return time_call(self.torch, call, copies)
        found = time_call(self.torch, call, copies, clock=lambda: card.sm_hz, full_hz=card.most_hz)
        self._clocks.append(found.sm_hz)
        return found

    def cold(self, call: Callable[[int], Any], copies: int, gpu_bytes: int = 0) -> LabRun:
        """Device seconds of a call that takes turns with so many copies of its operands, in a CUDA graph."""
        return device_run(self.kernel(call, copies), gpu_bytes)

    def queued(self, call: Callable[[], Any], gpu_bytes: int = 0) -> LabRun:
        """Device seconds of a call between others like it: launches are queued before the first one runs."""
        if not self.timed:
            return untimed()
        call()
        count = max(1, min(QUEUED, int(QUEUED_S / self.seconds(call))))

        def several() -> None:
            for _ in range(count):
                call()

        samples = []
        for _ in range(QUEUED_SAMPLES):
            self.synchronize()
            self.torch.cuda._sleep(AHEAD_CYCLES)
            samples.append(elapsed_s(self.torch, several, self.sample_clock) / count)
        return self.measured(samples, gpu_bytes)
