"""How much memory a traced step holds at its fullest, and what holds it.

A tensor lives as long as the module's code or autograd refers to it, as under PyTorch's own allocator, which gives
out blocks of 512 bytes. States and weights stay all the time; gradients come and go with a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from gnomon.spec.traced import Role, Storage, Traced

BLOCK = 512
STAYS: tuple[Role, ...] = ("parameters", "buffers", "inputs", "optimizer")
COMES: tuple[Role, ...] = ("gradients", "activations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The fullest moment: the place of its call, and bytes by what they are for."""

    at: int
    parts: Mapping[str, float]

    @property
    def bytes(self) -> float:
        return sum(self.parts.values())


def peak(traced: Traced) -> Peak:
    """Over all calls of a step."""
    stays = {role: _sum(traced.storages, role) for role in STAYS}
    series = {role: _series(traced, role) for role in COMES}
    at = int(np.argmax(sum(series.values())))
    parts = stays | {role: float(values[at]) for role, values in series.items()}
    return Peak(at=at, parts={role: size for role, size in parts.items() if size})


def _sum(storages: Sequence[Storage], role: Role) -> float:
    return sum(_block(one.bytes) for one in storages if one.role == role)


def _series(traced: Traced, role: Role) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Bytes of a role at each call, while it runs."""
    count = len(traced.calls)
    change = np.zeros(count + 2)
    for one in traced.storages:
        if one.role == role:
            size = _block(one.bytes)
            change[min(one.born, count)] += size
            if one.died is not None:
                change[min(max(one.died, one.born + 1), count + 1)] -= size
    return np.cumsum(change)[: max(count, 1)]


def _block(size: float) -> float:
    return ceil(size / BLOCK) * float(BLOCK)
