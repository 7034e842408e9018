"""Weights of blocks copied from host memory into a few slots on the GPU, ahead of the block that needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any

from gnomon.lab.bench import Bench

PROBE_BYTES = 2**28
PROBES = 4


class WeightStream:
    """Slots on the GPU that are filled in order on a stream of their own.

    A slot is filled again once the compute stream is done with it, and with `write_back` once what it holds is back in
    host memory. The order may be endless: what the next pass needs is then fetched at the end of this one.
    """

    def __init__(self, bench: Bench, host: Sequence[Any], slots: int, *, write_back: bool = False) -> None:
        self.bench, self.host, self.write_back = bench, host, write_back
        slots = min(slots, len(host))  # with more, a block would be fetched again before its changes are written back
        self.copies, self.down = bench.stream(), bench.stream() if write_back else None
        self._held: list[int] = [-1] * slots
        self._written: dict[int, Any] = {}
        self.slots = [bench.empty(host[0].numel(), dtype=host[0].dtype) for _ in range(slots)]
        self._arrived: list[Any] = [None] * slots

    def endless(self) -> Iterator[Any]:
        """Each block's weights in turn, again and again. What is yielded may be used until the next is asked for."""
        return self.each(cycle(range(len(self.host))))

    def each(self, order: Iterable[int]) -> Iterator[Any]:
        coming = iter(order)
        there = sum(self._fetch(index, slot) for slot, index in zip(range(len(self.slots)), coming, strict=False))
        slot = 0
        while there:
            self.bench.wait(self._arrived[slot])
            yield self.slots[slot]
            following = next(coming, None)
            there += -1 if following is None else self._fetch(following, slot) - 1
            slot = (slot + 1) % len(self.slots)

    def _fetch(self, index: int, slot: int) -> int:
        """Fill a slot once all that the compute stream was given so far is done with it; the count of blocks."""
        released = self._flush(slot)
        self._held[slot] = index
        with self.bench.within(self.copies):
            self.bench.wait(released)
            self.bench.wait(self._written.get(index))
            self.slots[slot].copy_(self.host[index], non_blocking=True)
            self._arrived[slot] = self.bench.recorded()
        return 1

    def _flush(self, slot: int) -> Any:
        """The event after which a slot is free."""
        released, index = self.bench.recorded(), self._held[slot]
        if not self.write_back or index < 0:
            return released
        with self.bench.within(self.down):
            self.bench.wait(released)
            self.host[index].copy_(self.slots[slot], non_blocking=True)
            self._written[index] = self.bench.recorded()
        return self._written[index]

    def finish(self) -> None:
        """Write back what the slots hold."""
        for slot in range(len(self.slots)):
            self._flush(slot)
        self.bench.synchronize()


def in_turn(bench: Bench, host: Sequence[Any], slot: Any) -> Iterator[Any]:
    """Each block's weights, copied when they are needed and not before."""
    for flat in host:
        slot.copy_(flat, non_blocking=True)
        yield slot


def evenly(layers: int, count: int) -> frozenset[int]:
    """So many of the layers, spread over all."""
    return frozenset(i for i in range(layers) if (i + 1) * count // layers > i * count // layers)


def some_streamed(bench: Bench, host: Sequence[Any], chosen: frozenset[int], slots: int) -> Iterator[Any]:
    """Each layer's weights in turn, again and again: the chosen ones as they arrive, the others stay on the GPU."""
    there = {i: flat.to(bench.device, copy=True) for i, flat in enumerate(host) if i not in chosen}
    coming = WeightStream(bench, [host[i] for i in sorted(chosen)], slots).endless()
    while True:
        for i in range(len(host)):
            yield next(coming) if i in chosen else there[i]


def link_rates(bench: Bench) -> dict[str, float]:
    """Bytes per second of large copies each way, measured alone; nothing on a CPU."""
    if not bench.timed:
        return {}
    torch = bench.torch
    host, near = bench.pinned(PROBE_BYTES, torch.uint8), bench.empty(PROBE_BYTES, dtype=torch.uint8)

    def best(copy: Callable[[], Any]) -> float:
        return PROBE_BYTES / min(bench.seconds(copy) for _ in range(PROBES))

    return {
        "host_to_gpu_bytes_s": best(lambda: near.copy_(host, non_blocking=True)),
        "gpu_to_host_bytes_s": best(lambda: host.copy_(near, non_blocking=True)),
    }
