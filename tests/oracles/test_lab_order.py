"""What runs on streams beside the host runs here as late as its events allow: a wait that is missing changes numbers.

Elsewhere in the tests the same code runs as early as it can.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; run `make test-oracles`")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from gnomon.lab.bench import Bench  # noqa: E402
from gnomon.lab.checkpoint import Checkpointed, Snapshots  # noqa: E402
from gnomon.lab.experiments import infinite_llm  # noqa: E402
from gnomon.lab.experiments.deep_optimizer_states import _checks, _Reference  # noqa: E402
from gnomon.lab.host_table import Collected, HostTable  # noqa: E402
from gnomon.lab.offload import HostUpdate, InterleavedUpdates, Offloaded  # noqa: E402
from gnomon.lab.slots import SlotPool  # noqa: E402
from gnomon.lab.staged import Pageable, Pipelined  # noqa: E402
from gnomon.lab.stream import WeightStream  # noqa: E402
from gnomon.lab.swaps import BLOCKS, GATHERED, GROUPS, CacheShape, Rotation, SwappedCache  # noqa: E402
from gnomon.lab.ways import close  # noqa: E402

pytestmark = pytest.mark.oracle

PATIENCE_S = 0.5


class Stream:
    """Work in order, done when somebody waits for it."""

    def __init__(self) -> None:
        self.queued: list[Callable[[], Any]] = []
        self.done = 0
        self.lock = threading.RLock()

    def run_to(self, place: int) -> None:
        with self.lock:
            while self.done < place:
                self.done += 1
                self.queued[self.done - 1]()


class Mark:
    """An event. A thread other than the first leaves the work to it for a while, so that it happens late."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream, self.place = stream, len(stream.queued) if stream else 0
        self.reached = threading.Event()

    def synchronize(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.reached.wait(PATIENCE_S)
        if self.stream is not None:
            self.stream.run_to(self.place)
        self.reached.set()


class Deferred(TorchDispatchMode):
    """Puts every call that changes a tensor on a stream; what only looks or makes is done at once."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self.stream = stream

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if not call._schema.is_mutable:
            return call(*args, **options)
        self.stream.queued.append(lambda: call(*args, **options))
        return options.get("out", args[0]) if call._schema.returns else None


class Late(Bench):
    def __init__(self) -> None:
        super().__init__(torch, "cpu", lambda _: None)
        self.current: Stream | None = None
        self.streams: list[Stream] = []

    def stream(self) -> Any:
        self.streams.append(Stream())
        return self.streams[-1]

    @contextmanager
    def within(self, stream: Any) -> Iterator[None]:
        self.current = stream
        try:
            with Deferred(stream):
                yield
        finally:
            self.current = None

    def recorded(self) -> Any:
        return Mark(self.current)

    def wait(self, event: Any) -> None:
        if event is not None and self.current is not None:
            self.current.queued.append(event.synchronize)

    def synchronize(self) -> None:
        for stream in self.streams:
            stream.run_to(len(stream.queued))


def updates(bench: Bench, stride: int | None) -> bool:
    """Whether updates on the CPU, or on both, end where those of one device do."""
    data = Offloaded(bench, 1050, 100)
    host, reference = HostUpdate(data), _Reference(data)
    for step in range(4):
        reference.step(step)
    way = host if stride is None else InterleavedUpdates(data, host, stride)
    return all(check.ok for check in _checks(data, reference, way.step, "late", 4))


@pytest.mark.parametrize("stride", [None, 1, 2, 3, 5])
def test_updates_wait_for_what_they_need(stride: int | None) -> None:
    assert updates(Late(), stride)


def test_a_gpu_that_does_not_wait_for_its_states_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Late, "wait", lambda self, event: None)
    assert not updates(Late(), 1)


def test_a_cpu_that_does_not_wait_for_its_gradients_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mark, "synchronize", lambda self: None)
    assert not updates(Late(), None)


def test_weights_on_their_way_are_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = HostUpdate.update

    def careless(self: HostUpdate, index: int, slot: int, step: int) -> None:
        self._sent[slot] = None
        whole(self, index, slot, step)

    monkeypatch.setattr(HostUpdate, "update", careless)
    assert not updates(Late(), None)


class Computing(Late):
    """The compute stream is the host itself, which waits for what it is told to wait for."""

    def wait(self, event: Any) -> None:
        if event is not None and self.current is None:
            event.synchronize()
        super().wait(event)


def worked_through(bench: Bench, slots: int) -> bool:
    """Whether blocks that are changed three times in slots on the GPU come back as they should."""
    host = [torch.full((4,), float(i)) for i in range(5)]
    stream = WeightStream(bench, host, slots, write_back=True)
    for place, flat in enumerate(stream.each(list(range(5)) * 3)):
        flat.mul_(2.0).add_(place)
    stream.finish()
    wanted = [float(i) for i in range(5)]
    for place in range(15):
        wanted[place % 5] = 2 * wanted[place % 5] + place
    return all(bool((flat == value).all()) for flat, value in zip(host, wanted, strict=True))


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 7])
def test_blocks_arrive_before_they_are_used_and_leave_before_they_are_replaced(slots: int) -> None:
    assert worked_through(Computing(), slots)


def test_a_stream_that_waits_for_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Computing, "wait", lambda self, event: None)
    assert not worked_through(Computing(), 3)


def arrived_in_order(bench: Bench) -> bool:
    """Whether each layer's bytes are on the GPU when they are handed out."""
    layers = [torch.full((64,), i, dtype=torch.uint8) for i in range(5)]
    pipeline = Pipelined(bench, Pageable(layers))
    coming = pipeline.each()
    found = [next(coming).clone() for _ in range(20)]
    pipeline.close()
    return all(torch.equal(one, layers[i % 5]) for i, one in enumerate(found))


def test_a_buffer_is_filled_again_only_when_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    assert arrived_in_order(Computing())
    monkeypatch.setattr(Computing, "wait", lambda self, event: None)
    assert not arrived_in_order(Computing())


def collected_in_order(bench: Bench) -> bool:
    """Whether each batch's rows are on the GPU when they are waited for."""
    table = HostTable.drawn(Bench(torch, "cpu", lambda _: None), 4096)
    pipeline = Collected(HostTable(bench, table.flat), 8, 20)
    found = []
    indices = table.indices(8, 20, 6)
    for index in indices:
        rows, arrived = pipeline.fetch(index)
        bench.wait(arrived)
        found.append(rows.clone())
    return all(torch.equal(one, table.rows(8)[index]) for one, index in zip(found, indices, strict=True))


def test_a_pinned_buffer_is_filled_again_only_when_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collected_in_order(Computing())
    monkeypatch.setattr(Computing, "wait", lambda self, event: None)
    assert not collected_in_order(Computing())


def attended(bench: Bench) -> bool:
    """Whether a step with a cache that is copied meanwhile is right, and the next with another one."""
    sizes = {"heads": 3, "dim": 32, "tokens": 64, "pieces": 4}
    step, right = infinite_llm._drawn(bench, sizes, 2), True
    for _ in range(2):
        right &= close("moved", step.moved(), step.truth(), infinite_llm.BOUND).ok
        step.remote.values.add_(1.0)
    return right


def test_a_cache_is_attended_to_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert attended(Computing())
    monkeypatch.setattr(Computing, "wait", lambda self, event: None)
    assert not attended(Computing())


def saved(mode: str, folder: Path, *, waits: bool = True) -> int:
    """Bytes of three checkpoints, one an update, that are not those of the state when they were asked for."""
    bench, state, wrong = Late(), [torch.arange(500.0), torch.zeros(3)], 0
    snapshots = Snapshots(bench, 2012, 2, folder, 300)
    snapshots.reset()
    kept = Checkpointed(bench=bench, mode=mode, snapshots=snapshots, stream=bench.stream())
    for _ in range(3):
        before = [tensor.clone() for tensor in state]
        snapshot = kept.request(state)
        if waits:
            kept.before_update()
        for tensor in state:
            tensor += 1
        snapshots.drain()
        wrong += snapshot.differing(torch, before)
    snapshots.close()
    return wrong


@pytest.mark.parametrize("mode", ["synchronous", "asynchronous", "lazy"])
@pytest.mark.parametrize("small_bytes", [100, 10_000])
def test_checkpoints_are_copied_before_the_state_changes(
    mode: str, small_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnomon.lab.checkpoint.SMALL_BYTES", small_bytes)
    assert saved(mode, tmp_path) == 0


def test_a_lazy_copy_that_is_not_waited_for_is_seen(tmp_path: Path) -> None:
    assert saved("lazy", tmp_path, waits=False) > 0
    assert saved("asynchronous", tmp_path, waits=False) == 0


def swapped(bench: Bench, way: str) -> bool:
    """Whether requests that left and came back beside steps, again and again, are what they were."""
    cache = SwappedCache(bench, CacheShape(layers=2, blocks=3, block_bytes=16, requests=4))
    cache.reset(way, (2, 3))
    Rotation(cache, way, lambda: None, overlapped=True).run(10)
    bench.synchronize()
    there = sum(cache.differing_near(way, one) for one in (2, 3))
    return there + sum(cache.differing_far(way, one) for one in (0, 1)) == 0


@pytest.mark.parametrize("way", [BLOCKS, GROUPS, GATHERED])
def test_a_request_comes_back_once_it_has_left(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert swapped(Late(), way)
    monkeypatch.setattr(Late, "wait", lambda self, event: None)
    assert not swapped(Late(), way)


def in_their_slots(bench: Bench) -> bool:
    """Whether experts are in their slots when they are used, and slots are filled again only after that."""
    host = [[torch.full((4,), 10.0 * layer + one) for one in range(3)] for layer in range(4)]
    pool, good = SlotPool(bench, host, 2), True
    for layer in range(4):
        for one in range(3):
            pool.fetch((layer, one))
            good = good and torch.equal(pool.weights((layer, one)), host[layer][one])
            pool.release((layer, one))
    return good and pool.free == 2 and pool.copied == 12


def test_an_expert_is_used_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_their_slots(Computing())
    monkeypatch.setattr(Computing, "wait", lambda self, event: None)
    assert not in_their_slots(Computing())
