"""Experts in pinned host memory, and slots on the GPU that hold some of them."""

from __future__ import annotations

from collections import deque
from typing import Any

from gnomon.lab.bench import SEED, Bench

Key = tuple[int, int]
"""A layer and an expert."""


def expert_values(width: int, inner: int) -> int:
    """Weights of an expert: gate, up and down."""
    return 3 * width * inner


def through(torch: Any, x: Any, flat: Any, width: int, inner: int) -> Any:
    """x [rows, width] through an expert: gate and up as one, SiLU, down."""
    functional = torch.nn.functional
    both, down = flat.split([2 * inner * width, width * inner])
    gate, up = functional.linear(x, both.view(2 * inner, width)).chunk(2, -1)
    return functional.linear(functional.silu(gate) * up, down.view(width, inner))


def drawn_experts(bench: Bench, layers: int, experts: int, width: int, inner: int) -> list[list[Any]]:
    """Experts of all layers in bf16, in pinned host memory."""
    torch, generator = bench.torch, bench.generator(SEED + 140)
    size = expert_values(width, inner)

    def one() -> Any:
        near = bench.normal(size, dtype=torch.bfloat16, generator=generator, scale=width**-0.5)
        near[2 * inner * width :] *= (width / inner) ** 0.5
        return bench.pinned_copy(near)

    return [[one() for _ in range(experts)] for _ in range(layers)]


class SlotPool:
    """Slots that experts are copied to on a stream of their own, each once the compute stream is done with it."""

    def __init__(self, bench: Bench, host: list[list[Any]], count: int) -> None:
        self.bench, self.host, self.copies = bench, host, bench.stream()
        self.slots = [bench.empty(host[0][0].numel(), dtype=host[0][0].dtype) for _ in range(count)]
        self._free: deque[int] = deque(range(count))
        self._released: list[Any] = [None] * count
        self._at: dict[Key, int] = {}
        self._arrived: dict[Key, Any] = {}
        self.copied = 0

    @property
    def free(self) -> int:
        return len(self._free)

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def fetch(self, key: Key) -> None:
        """Copy an expert to a free slot."""
        slot, (layer, expert) = self._free.popleft(), key
        with self.bench.within(self.copies):
            self.bench.wait(self._released[slot])
            self.slots[slot].copy_(self.host[layer][expert], non_blocking=True)
            self._arrived[key] = self.bench.recorded()
        self._at[key] = slot
        self.copied += 1

    def weights(self, key: Key) -> Any:
        """An expert's weights, there when the compute stream needs them."""
        self.bench.wait(self._arrived[key])
        return self.slots[self._at[key]]

    def used(self, key: Key) -> None:
        """The compute stream was given all that needs this expert so far."""
        self._released[self._at[key]] = self.bench.recorded()

    def evict(self, key: Key) -> None:
        """Free an expert's slot."""
        del self._arrived[key]
        self._free.append(self._at.pop(key))

    def release(self, key: Key) -> None:
        """Free the slot of an expert that the compute stream was just given."""
        self.used(key)
        self.evict(key)

    def empty(self) -> None:
        """Free all slots."""
        for key in list(self._at):
            self.evict(key)
