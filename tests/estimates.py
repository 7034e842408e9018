"""What the band of an estimate must be. `Estimate.low` and `high` are clamped to the value, so they are not asked."""

from __future__ import annotations

import numpy as np

from gnomon.spec import Estimate


def check_band(estimate: Estimate, widest: float = 10.0) -> None:
    """The value is positive and lies inside the middle 90% of its own draws, which span no more than `widest` times."""
    assert 0 < estimate.value < np.inf
    assert estimate.draws.size
    low, high = np.quantile(estimate.draws, [0.05, 0.95])
    assert 0 < low < estimate.value < high < widest * low
