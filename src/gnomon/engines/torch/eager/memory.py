"""Peak memory of a traced step, by role.

A tensor is live as long as the module's code or autograd refers to it, as under PyTorch's allocator, which allocates
blocks of 512 bytes. States and weights are persistent; gradients are allocated and freed in a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from gnomon.spec.traced import Role, Storage, Traced

BLOCK = 512
PERSISTENT: tuple[Role, ...] = ("parameters", "buffers", "inputs", "optimizer")
TRANSIENT: tuple[Role, ...] = ("gradients", "activations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The memory peak: the index of its call, and bytes by role."""

    at: int
    parts: Mapping[str, float]

    @property
    def bytes(self) -> float:
        return sum(self.parts.values())


def peak(traced: Traced) -> Peak:
    """The memory peak over all calls of a step."""
    persistent = {role: _sum(traced.storages, role) for role in PERSISTENT}
    series = {role: _series(traced, role) for role in TRANSIENT}
    at = int(np.argmax(sum(series.values())))
    parts = persistent | {role: float(values[at]) for role, values in series.items()}
    return Peak(at=at, parts={role: size for role, size in parts.items() if size})


def _sum(storages: Sequence[Storage], role: Role) -> float:
    return sum(_block(one.bytes) for one in storages if one.role == role)


def _series(traced: Traced, role: Role) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Live bytes of a role during each call."""
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
