"""Sizes of operators as functions of the batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from gnomon.spec.workload import Batch, Floats

Figure = Literal[
    "tokens", "logit_rows", "decodes", "decode_context", "prefills", "prompt", "prefill_tokens", "prefill_context",
    "cached",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rows:
    """A size that follows the batch: one of its figures, times a factor."""

    of: Figure
    factor: float = 1.0


Size = int | Rows
TOKENS = Rows("tokens")
LOGITS = Rows("logit_rows")
PROMPT = Rows("prompt")
PREFILLS = Rows("prefills")
DECODES = Rows("decodes")
PROMPT_TOKENS = Rows("prefill_tokens")
PROMPT_CONTEXT = Rows("prefill_context")
"""Tokens that prompts attend to: the new ones and those cached before them."""
CACHED = Rows("cached")

Counted = TypeVar("Counted", bound=Any)
"""A frozen dataclass with a field `count`."""

Shape = dict[str, Floats]
"""Sizes of one operator for many steps, under the column names of an operator table."""


def merged(items: Iterable[Counted]) -> list[Counted]:
    """Equal operators, or equal layers, as one that comes more often: their order does not change what a rank runs."""
    counts: dict[Counted, int] = {}
    for item in items:
        alone = replace(item, count=1)
        counts[alone] = counts.get(alone, 0) + item.count
    return [replace(item, count=count) for item, count in counts.items()]


def constants(batch: Batch, /, **sizes: float) -> Shape:
    return {name: np.full(batch.size, float(size)) for name, size in sizes.items()}


def size_of(size: Size, batch: Batch) -> Floats:
    """A size for every step of the batch."""
    if isinstance(size, Rows):
        figure: Floats = getattr(batch, size.of)
        return figure * size.factor
    return np.full(batch.size, float(size))


def rounded_up(size: int, step: int) -> int:
    """The next multiple of a step."""
    return -(-size // step) * step
