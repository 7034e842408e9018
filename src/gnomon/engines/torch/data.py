"""Synthetic tokens: a sequence depends on the seed, its step and its number only, so every plan trains on the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SKEW = 3
"""Low token numbers are common and high ones rare, about as in text, so that there is something to learn."""


def sequences(*, seed: int, step: int, numbers: range, seq: int, vocab: int) -> NDArray[np.int64]:
    """One row of `seq + 1` tokens per sequence: inputs are all but the last, targets all but the first."""
    rows = [np.random.default_rng((seed, step, number)).random(seq + 1) for number in numbers]
    return (vocab * np.stack(rows) ** SKEW).astype(np.int64)
