"""Made-up text: a sequence depends on the seed, its step and its number only, so every plan learns the same."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SKEW = 3
"""Low token numbers are common and high ones rare, about as in text, so that there is something to learn."""


def sequences(*, seed: int, step: int, numbers: range, seq: int, vocab: int) -> NDArray[np.int64]:
    """One row of `seq + 1` tokens a sequence: each is read up to the last but one, and answers from the second on."""
    rows = [np.random.default_rng((seed, step, number)).random(seq + 1) for number in numbers]
    return (vocab * np.stack(rows) ** SKEW).astype(np.int64)
