"""Why something does not fit: the first part of the memory that finds no room."""

from __future__ import annotations

from collections.abc import Mapping

from gnomon.spec.answers import Shortage

SERVING = {"weights": ("weights",), "cache": ("kv",)}
TRAINING = {"states": ("weights", "gradients", "optimizer")}
"""Parts of a memory that have a name of their own, as answers list them; what is left is for working."""
WORKING = "working memory"


def shortage(
    parts: Mapping[str, float], usable_bytes: float, *, sequences: int = 0, tokens: int = 0
) -> Shortage | None:
    """The part of a serving step, or of a module, that does not fit: weights, then what is worked in, then the cache of
    so many sequences of so many tokens."""
    return _first(parts, usable_bytes, SERVING, ("weights", WORKING, "cache"), sequences, tokens)


def training_shortage(parts: Mapping[str, float], usable_bytes: float, sequences: int, tokens: int) -> Shortage | None:
    """The same of a training step: what weights, gradients and optimizer take, then a micro-batch."""
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
