"""What the sizes of an operator table may be, alone and beside each other; what is not names its row and column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gnomon.cost.machine import COLLECTIVES, EXCHANGES
from gnomon.errors import InputError
from gnomon.spec.workload import Floats

MOST_SIZE, MOST_BYTES = 1e12, 1e15
"""Beyond these a size is a slip: no operator of one chip takes a petabyte."""
MOST_SKEW = 3.0
"""Tables of uneven experts go to 1.2."""
MOST_DIGIT_BITS, MOST_KEY_BYTES = 16, 64
"""Of a radix sort: a block counts every value of a digit."""
SWITCHES = ("causal", "quantised", "by_input", "by_weight", "unaligned")
"""Columns that are true or false."""
_TAKEN: Mapping[str, tuple[float, ...]] = {
    **dict.fromkeys(SWITCHES, (0.0, 1.0)),
    "across": (0.0, 1.0, 2.0),
    "matrices": (2.0, 3.0),
    "reads": (1.0, 2.0),
}
"""Columns that take a few values alone."""
_BYTES = frozenset({"bytes_read", "bytes_written", "bytes", "turned", "turned_weights"})
_BROKEN = _BYTES | {"skew", "visited", "absent", "cycles"}
_FROM_ZERO = _BYTES | {"window", "skew", "absent", "value_bytes"}
_MOST = dict.fromkeys(_BYTES, MOST_BYTES) | {
    "skew": MOST_SKEW,
    "digit_bits": MOST_DIGIT_BITS,
    "key_bytes": MOST_KEY_BYTES,
}


class Places(Protocol):
    """Where each row stands."""

    def __getitem__(self, index: int, /) -> str: ...


def check_range(kind: str, name: str, values: Floats, places: Places) -> None:
    """Sizes are whole numbers from 1; bytes are any from 0, those of a collective and what a strided convolution sums
    over are any from 1."""
    if name in _TAKEN:
        bad = np.flatnonzero(~np.isin(values, _TAKEN[name]))
        what = ", ".join(f"{value:g}" for value in _TAKEN[name][:-1]) + f" or {_TAKEN[name][-1]:g}"
    else:
        broken = name in _BROKEN or (kind, name) == ("conv", "k")
        from_zero = (name in _FROM_ZERO and kind not in COLLECTIVES) or name == "rows"
        least = 0.0 if from_zero or name == "nodes" else 1.0
        good = np.isfinite(values) & (values >= least)
        bad = np.flatnonzero(~(good if broken else good & (values == np.floor(values))))
        what = f"a {'number' if broken else 'whole number'} of at least {least:g}"
    if bad.size:
        first = int(bad[0])
        raise InputError(f"'{values[first]:.12g}' is not {what}", where=f"{places[first]}, column {name}")
    most = _MOST.get(name, MOST_SIZE)
    large = np.flatnonzero(values > most)
    if large.size:
        first = int(large[0])
        raise InputError(f"'{values[first]:.12g}' is more than {most:g}", where=f"{places[first]}, column {name}")


def check_sizes(kind: str, columns: Mapping[str, Any], places: Places, node: int) -> None:
    def refuse(bad: Any, column: str, why: str) -> None:
        found = np.flatnonzero(bad)
        if found.size:
            raise InputError(why, where=f"{places[int(found[0])]}, column {column}")

    if kind in EXCHANGES:
        refuse(
            columns["ranks"] > node, "ranks", f"beyond a node, which holds {node}, no exchange with experts is priced"
        )
        refuse(columns["ranks"] > columns["experts"], "ranks", "there are more ranks than experts")
    if kind == "moe" or kind in EXCHANGES:
        refuse(columns["topk"] > columns["experts"], "topk", "more experts are chosen than there are")
    if "visited" in columns:
        visited, chosen = columns["visited"], columns["tokens"] * columns["topk"]
        refuse(visited > np.minimum(columns["experts"], chosen), "visited", "more than there are experts, or choices")
        refuse(visited < columns["topk"], "visited", "fewer than a single token chooses")
    if "by_input" in columns and "by_weight" in columns:
        refuse(columns["by_input"] * columns["by_weight"] > 0, "by_weight", "one gradient at a time")
    if kind.startswith("attention"):
        if "q_len" in columns:
            why = "new tokens are more than the keys they attend to"
            refuse(columns["q_len"] > columns["kv_len"], "q_len", why)
        refuse(columns["heads"] % columns["kv_heads"] != 0, "kv_heads", "heads do not divide by kv_heads")
