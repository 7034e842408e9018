"""Why something does not fit: the first part of the memory that is short."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.cost.tiers import HOST, NVME, rooms
from gnomon.engines import MemoryUse
from gnomon.spec import Pool
from gnomon.spec.answers import Shortage

SERVING = {"weights": ("weights",), "cache": ("kv",)}
TRAINING = {"states": ("weights", "gradients", "optimizer")}
"""Named parts of the memory in answers; the rest is working memory."""
WORKING = "working memory"


def shortage(
    parts: Mapping[str, float], usable_bytes: float, *, sequences: int = 0, tokens: int = 0
) -> Shortage | None:
    """The part of a serving step, or of a module, that does not fit: weights, then working memory, then the KV
    cache."""
    return _first(parts, usable_bytes, SERVING, ("weights", WORKING, "cache"), sequences, tokens)


def tier_shortage(use: MemoryUse, pool: Pool) -> Shortage | None:
    """The tier of a host that has no room for what the ranks of a replica keep there."""
    if not use.full_tier:
        return None
    needs = {HOST: use.host_bytes, NVME: use.nvme_bytes}[use.full_tier]
    return Shortage(part=use.full_tier, needs_bytes=needs, left_bytes=rooms(pool.machine)[use.full_tier])


def training_shortage(parts: Mapping[str, float], usable_bytes: float, sequences: int, tokens: int) -> Shortage | None:
    """The part of a training step that does not fit: weights, gradients and optimizer states, then a micro-batch."""
    return _first(parts, usable_bytes, TRAINING, ("states", WORKING), sequences, tokens)


def _first(
    parts: Mapping[str, float],
    usable_bytes: float,
    named: Mapping[str, tuple[str, ...]],
    order: tuple[str, ...],
    sequences: int,
    tokens: int,
) -> Shortage | None:
    own = {name: sum(parts.get(part, 0.0) for part in members) for name, members in named.items()}
    own[WORKING] = sum(parts.values()) - sum(own.values())
    left = usable_bytes
    for name in order:
        if own[name] > left:
            return Shortage(part=name, needs_bytes=own[name], left_bytes=left, sequences=sequences, tokens=tokens)
        left -= own[name]
    return None
