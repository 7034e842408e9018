"""The timer on a GPU that is played: calls cost what the test says, slower while the card is hot from work before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from gnomon.calibrate import timer
from gnomon.calibrate.kernels.sustained import sustained
from gnomon.calibrate.lab import Lab
from gnomon.calibrate.timer import Timing, steadiest, time_call

FULL_HZ = 1.98e9


class FakeGpu:
    """A card whose clock gives way until it has rested, and a torch that runs on it."""

    def __init__(self, call_s: float, tired_s: float = 0.0) -> None:
        self.now, self.call_s, self.tired_s = 0.0, call_s, tired_s
        self.recording: list[int] | None = None
        self.calls: list[int] = []
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.at = 0.0

            def record(self) -> None:
                self.at = gpu.now

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Any) -> float:
                return float(end.at - self.at) * 1e3

        class CUDAGraph:
            def __init__(self) -> None:
                self.held: list[int] = []

            def replay(self) -> None:
                for i in self.held:
                    gpu.call(i)

        @contextlib.contextmanager
        def graph(into: CUDAGraph, stream: Any = None) -> Iterator[None]:
            gpu.recording = into.held
            yield
            gpu.recording = None

        stream = SimpleNamespace(synchronize=lambda: None)
        self.torch = SimpleNamespace(
            cuda=SimpleNamespace(
                Event=Event,
                CUDAGraph=CUDAGraph,
                graph=graph,
                Stream=lambda: stream,
                stream=lambda _: contextlib.nullcontext(),
                synchronize=lambda: None,
            )
        )

    @property
    def hz(self) -> float:
        return FULL_HZ / (1.25 if self.tired_s > 0 else 1.0)

    def call(self, i: int) -> None:
        if self.recording is not None:
            self.recording.append(i)
            return
        self.calls.append(i)
        self.now += self.call_s * FULL_HZ / self.hz

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.tired_s -= seconds


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> Any:
    def on(gpu: FakeGpu) -> FakeGpu:
        monkeypatch.setattr(timer.time, "sleep", gpu.sleep)
        monkeypatch.setattr(timer.time, "monotonic", lambda: gpu.now)
        return gpu

    return on


def test_operands_take_turns_and_the_median_is_told(rested: Any) -> None:
    gpu = rested(FakeGpu(20e-6))
    found = time_call(gpu.torch, gpu.call, copies=3, clock=lambda: gpu.hz, full_hz=FULL_HZ)
    assert found.seconds == pytest.approx(20e-6)
    assert found.sm_hz == FULL_HZ
    replayed = gpu.calls[-99:]
    assert all((after - before) % 3 == 1 for before, after in pairwise(replayed))


def test_a_tired_card_is_rested_and_timed_again(rested: Any) -> None:
    gpu = rested(FakeGpu(20e-6, tired_s=0.05))
    found = time_call(gpu.torch, gpu.call, clock=lambda: gpu.hz, full_hz=FULL_HZ)
    assert found.seconds == pytest.approx(20e-6)
    assert found.sm_hz == FULL_HZ
    gpu = rested(FakeGpu(20e-6, tired_s=1e9))
    held = time_call(gpu.torch, gpu.call, clock=lambda: gpu.hz, full_hz=FULL_HZ)
    assert held.seconds == pytest.approx(25e-6)
    assert held.sm_hz == pytest.approx(FULL_HZ / 1.25)


def test_unsteady_replays_are_measured_again() -> None:
    tries = iter([Timing(1.0, 0.3), Timing(2.0, 0.02), Timing(3.0, 0.01)])
    assert steadiest(lambda: next(tries)) == Timing(2.0, 0.02)
    assert len(list(tries)) == 1


def test_sustained_work_is_read_once_it_has_settled(rested: Any) -> None:
    gpu = rested(FakeGpu(1e-3))
    lab: Any = Lab.__new__(Lab)
    lab.torch = gpu.torch
    lab.torch.add = lambda x, y, out: gpu.call(0)
    lab.torch.empty_like = lambda x: x
    lab.random = lambda dtype, *shapes: [None, None]

    class Meter:
        most_hz = FULL_HZ

        @property
        def joules(self) -> float:
            return 500.0 * gpu.now

        @property
        def sm_hz(self) -> float:
            return gpu.hz

    lab.card = Meter()
    row = sustained(lab, "add", 4096, 0, 8192)
    assert row["time_us"] == pytest.approx(1e3)
    assert row["burst_us"] == pytest.approx(1e3)
    assert row["watts"] == pytest.approx(500.0)
    assert (row["bytes"], row["flops"], row["sm_hz"]) == (6.0 * 4096 * 8192, 0.0, FULL_HZ)
