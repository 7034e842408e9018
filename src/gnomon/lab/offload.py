"""Adam states in host memory, in subgroups, beside 16-bit weights and gradients on the GPU: who updates which.

`HostUpdate` is ZeRO-Offload's way: the CPU updates all. `InterleavedUpdates` fetches every so many subgroups to the
GPU. Both leave the same numbers behind. Copies run on streams of their own, from and to pinned memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnomon.lab.bench import SEED, Bench

LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.95, 1e-8, 0.1
STATES = 3
"""fp32 weights, momentum and variance."""


def adamw(bench: Bench, states: list[Any], gradient: Any, step: int, *, fused: bool = True) -> None:
    """PyTorch's AdamW on fp32 tensors, in place."""
    from torch.optim.adamw import adamw as update

    weights, momentum, variance = states
    before = bench.torch.full((), float(step), dtype=bench.torch.float32, device=weights.device)
    update(
        [weights], [gradient], [momentum], [variance], [], [before], fused=fused, foreach=not fused, amsgrad=False,
        beta1=BETA1, beta2=BETA2, lr=LR, weight_decay=DECAY, eps=EPS, maximize=False,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subgroup:
    """Consecutive parameters of one subgroup."""

    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class Offloaded:
    """The state of both updates. Host memory is allocated once and reused."""

    def __init__(self, bench: Bench, parameters: int, subgroup: int) -> None:
        torch = bench.torch
        self.bench, self.parameters = bench, parameters
        self.pieces = [Subgroup(at, min(at + subgroup, parameters)) for at in range(0, parameters, subgroup)]
        self.largest = max(piece.size for piece in self.pieces)
        self.states = [[bench.pinned(piece.size, torch.float32) for _ in range(STATES)] for piece in self.pieces]
        self.weights16 = bench.empty(parameters, dtype=torch.bfloat16)
        generator = bench.generator(SEED + 1)
        self.gradients16 = [
            bench.normal(parameters, dtype=torch.bfloat16, generator=generator, scale=1e-2) for _ in range(2)
        ]

    def gradient(self, piece: Subgroup, step: int) -> Any:
        """The gradient of a subgroup; steps alternate between two sets."""
        return self.gradients16[step % 2][piece.start : piece.end]

    def initial(self) -> Any:
        """The same fp32 weights each time, subgroup by subgroup, on the device."""
        generator = self.bench.generator()
        for piece in self.pieces:
            yield self.bench.normal(piece.size, dtype=self.bench.torch.float32, generator=generator, scale=0.02)

    def reset(self) -> None:
        for piece, states, weights in zip(self.pieces, self.states, self.initial(), strict=True):
            states[0].copy_(weights)
            states[1].zero_()
            states[2].zero_()
            self.weights16[piece.start : piece.end].copy_(weights)
        self.bench.synchronize()

    @property
    def host_bytes(self) -> int:
        return sum(state.numel() * state.element_size() for states in self.states for state in states)


class HostUpdate:
    """Gradients go down in 16 bits, the CPU updates, 16-bit weights go up; copies overlapped with the CPU's work."""

    def __init__(self, data: Offloaded, *, fused: bool = True) -> None:
        bench, torch = data.bench, data.bench.torch
        self.data, self.bench, self.fused = data, bench, fused
        self.down, self.up = bench.stream(), bench.stream()
        self._gradients = [bench.pinned(data.largest, torch.bfloat16) for _ in range(2)]
        self._weights = [bench.pinned(data.largest, torch.bfloat16) for _ in range(2)]
        self._gradient32 = torch.empty(data.largest, dtype=torch.float32)
        self._sent: list[Any] = [None, None]

    def step(self, step: int) -> None:
        """One update of all parameters; `step` counts from 0."""
        self.pieces(list(range(len(self.data.pieces))), step)

    def pieces(self, chosen: list[int], step: int) -> None:
        """Update these subgroups one by one, while the next one's gradients are copied."""
        arrived: Any = self._fetch(chosen[0], 0, step) if chosen else None
        for turn, index in enumerate(chosen):
            slot, here = turn % 2, arrived
            if turn + 1 < len(chosen):
                arrived = self._fetch(chosen[turn + 1], 1 - slot, step)
            here.synchronize()
            self.update(index, slot, step)
            self._send(index, slot)

    def update(self, index: int, slot: int, step: int) -> None:
        """The CPU's part: widen the gradient, Adam, narrow the weights."""
        size, states = self.data.pieces[index].size, self.data.states[index]
        gradient = self._gradient32[:size]
        gradient.copy_(self._gradients[slot][:size])
        adamw(self.bench, states, gradient, step, fused=self.fused)
        if self._sent[slot] is not None:
            self._sent[slot].synchronize()
        self._weights[slot][:size].copy_(states[0])

    def _fetch(self, index: int, slot: int, step: int) -> Any:
        piece = self.data.pieces[index]
        with self.bench.within(self.down):
            self._gradients[slot][: piece.size].copy_(self.data.gradient(piece, step), non_blocking=True)
            return self.bench.recorded()

    def _send(self, index: int, slot: int) -> None:
        piece = self.data.pieces[index]
        with self.bench.within(self.up):
            target = self.data.weights16[piece.start : piece.end]
            target.copy_(self._weights[slot][: piece.size], non_blocking=True)
            self._sent[slot] = self.bench.recorded()


class InterleavedUpdates:
    """Every `stride`-th subgroup is updated on the GPU while the CPU updates the others."""

    def __init__(self, data: Offloaded, host: HostUpdate, stride: int) -> None:
        bench, torch = data.bench, data.bench.torch
        self.data, self.bench, self.host, self.stride = data, bench, host, stride
        self.fetch, self.flush, self.compute = bench.stream(), bench.stream(), bench.stream()
        self._slots = [[bench.empty(data.largest, dtype=torch.float32) for _ in range(STATES)] for _ in range(2)]
        self._gradient32 = bench.empty(data.largest, dtype=torch.float32)
        self._flushed: list[Any] = [None, None]

    @property
    def chosen(self) -> list[int]:
        """Subgroups that the GPU updates."""
        return list(range(self.stride - 1, len(self.data.pieces), self.stride))

    def step(self, step: int) -> None:
        """One update of all parameters; `step` counts from 0.

        All of the GPU's part is queued at once: events keep its order, two slots bound its memory.
        """
        mine = self.chosen
        for turn, index in enumerate(mine):
            slot = turn % 2
            self._update(index, slot, self._prefetch(index, slot), step)
        self.host.pieces([index for index in range(len(self.data.pieces)) if index not in mine], step)

    def _prefetch(self, index: int, slot: int) -> Any:
        size = self.data.pieces[index].size
        with self.bench.within(self.fetch):
            self.bench.wait(self._flushed[slot])
            for near, far in zip(self._slots[slot], self.data.states[index], strict=True):
                near[:size].copy_(far, non_blocking=True)
            return self.bench.recorded()

    def _update(self, index: int, slot: int, arrived: Any, step: int) -> None:
        piece = self.data.pieces[index]
        states = [near[: piece.size] for near in self._slots[slot]]
        with self.bench.within(self.compute):
            self.bench.wait(arrived)
            gradient = self._gradient32[: piece.size]
            gradient.copy_(self.data.gradient(piece, step))
            adamw(self.bench, states, gradient, step)
            self.data.weights16[piece.start : piece.end].copy_(states[0])
            updated = self.bench.recorded()
        with self.bench.within(self.flush):
            self.bench.wait(updated)
            for near, far in zip(states, self.data.states[index], strict=True):
                far.copy_(near, non_blocking=True)
            self._flushed[slot] = self.bench.recorded()
