"""The axes of a plan search, with every value that some plan of it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnomon.engines.training import Grid
from gnomon.engines.training.grid import COLUMNS, NAMED, SELDOM_CHOSEN
from gnomon.planning.training.search import Search

SWITCHES = ("sequence_parallel",)
NONE = "none"
"""No technique."""


def searched_axes(searches: Sequence[Search]) -> dict[str, tuple[Any, ...]]:
    """By choice its values in order, as options write them. Searches with other techniques mostly share their plans,
    which are looked at once."""
    grids = list({id(one.grid): one.grid for one in searches}.values())
    found = {name: _values(name, grids) for name in COLUMNS}
    found = {name: values for name, values in found.items() if name not in SELDOM_CHOSEN or len(values) > 1}
    if not searches[0].model.is_moe:
        del found["expert_tp"]  # what other matrices are cut over
    if found["cp"] == (1,):
        del found["cp_comm"]
    with_ = dict.fromkeys(" ".join(search.techniques) or NONE for search in searches)
    return found | {"techniques": tuple(with_)}


def _values(name: str, grids: Sequence[Grid]) -> tuple[Any, ...]:
    listed = np.unique(np.concatenate([np.unique(getattr(grid, name)) for grid in grids])).tolist()
    if name in NAMED:
        return tuple(map(NAMED[name], listed))
    return tuple(map(bool, listed)) if name in SWITCHES else tuple(listed)
