"""The draws of every estimate: one place for all of them, so that a name has the same draws everywhere."""

from __future__ import annotations

import zlib
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from gnomon.spec.estimate import DRAWS

END = 0.1
"""Of a step between even draws, how far the first and the last stand from the ends."""


@cache
def _normal_quantiles() -> NDArray[np.float64]:
    from statistics import NormalDist

    places = (np.arange(DRAWS) + END) / (DRAWS - 1 + 2 * END)
    return np.array([NormalDist().inv_cdf(place) for place in places])


@lru_cache(maxsize=4096)
def normals(name: str) -> NDArray[np.float64]:
    """One draw of the standard normal distribution for each draw of an estimate, always the same for a name: evenly
    spread in a drawn order, so that the 5% and 95% quantiles are the distribution's own. Those of 32 random draws
    hold 84%. The first half is evenly spread too, for what only so many draws are pushed through."""
    random, quantiles = np.random.default_rng(zlib.crc32(name.encode())), _normal_quantiles()
    # Quantiles from the outermost in, with their mirror images: 0, 3, 4, 7, … are one half, 1, 2, 5, 6, … the other.
    place = np.arange(DRAWS // 2)
    first = quantiles[: DRAWS // 2][np.isin(place % 4, (0, 3))]
    second = quantiles[: DRAWS // 2][np.isin(place % 4, (1, 2))]
    found = np.concatenate([random.permutation(np.concatenate([half, -half])) for half in (first, second)])
    found.flags.writeable = False
    return found
