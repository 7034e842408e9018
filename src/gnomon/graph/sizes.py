"""Sizes of operators as functions of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
"""Tokens that prompts look at: the new ones and those cached before them."""
CACHED = Rows("cached")

Shape = dict[str, Floats]
"""Sizes of one operator for many steps, under the column names of an operator table."""


def constants(batch: Batch, /, **sizes: float) -> Shape:
    return {name: np.full(batch.size, float(size)) for name, size in sizes.items()}


def size_of(size: Size, batch: Batch) -> Floats:
    """A size for every step of the batch."""
    if isinstance(size, Rows):
        figure: Floats = getattr(batch, size.of)
        return figure * size.factor
    return np.full(batch.size, float(size))
