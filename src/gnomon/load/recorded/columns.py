"""Columns of a trace while it is read: kept part by part in few bytes, and made into requests at the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.load.recorded.prefixes import by_groups
from gnomon.spec import NotModelled, Requests
from gnomon.spec.workload import Ints

TEXT = "S64"
WIDTH = int(TEXT[1:])
ASCII = 127
KEPT: dict[str, Any] = {
    "arrival_s": np.float64, "input_tokens": np.int32, "output_tokens": np.int32, "prefix_group": np.uint64,
    "prefix_tokens": np.int32, "adapter": np.uint64, "session": np.uint64, "priority": np.int32, "think_s": np.float64,
    "images": np.int32, "image_tokens": np.int32,
}  # fmt: skip
"""What is kept of a block until all are read; names as numbers."""
LENGTHS = ("input_tokens", "output_tokens")
NAMES = ("prefix_group", "adapter", "session", "model")
"""Columns of texts, of which only equality counts; empty ones are none."""
OPTIONAL = ("prefix_tokens", "priority", "think_s", "images", "image_tokens")
"""Columns of numbers that may be empty, which is zero."""
OPEN_LOOP = "without a column think_s later turns arrive at the times of the file, whenever answers come"
ONE_MODEL = NotModelled(option="column model", why="the model that is asked about serves all requests")
_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Constants of SplitMix64 (Steele, Lea, Flood 2014)."""


class Columns:
    """What was read so far."""

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}
        self.count = 0

    def add(self, columns: dict[str, NDArray[Any]]) -> None:
        """So many more rows; those of names are their numbers already."""
        for name, values in columns.items():
            self._parts.setdefault(name, []).append(values.astype(KEPT[name]))
        self.count += len(next(iter(columns.values())))

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    def take(self, name: str) -> NDArray[Any]:
        """A whole column, which is then no longer kept."""
        parts = self._parts.pop(name)
        whole = np.concatenate(parts)
        parts.clear()
        return whole

    def requests(self, name: str) -> tuple[Requests, tuple[NotModelled, ...]]:
        """The rows as requests in their order, and which columns act on none of them."""
        arrival = self.take("arrival_s") if "arrival_s" in self else np.zeros(self.count)
        inputs, outputs = (self.take(each).astype(np.int64) for each in LENGTHS)
        prefixes = None
        if "prefix_group" in self:
            group = numbered(self.take("prefix_group"))
            prefixes = by_groups(group, self.take("prefix_tokens").astype(np.int64))
        adapter = numbered(self.take("adapter")) if "adapter" in self else None
        priority = self.take("priority").astype(np.int64) if "priority" in self else None
        follows = think = None
        idle: tuple[NotModelled, ...] = ()
        if "think_s" in self:
            follows = followed(numbered(self.take("session")))
            think = np.where(follows < 0, 0.0, self.take("think_s"))
        elif "session" in self:
            idle = (NotModelled(option="column session", why=OPEN_LOOP),)
        made = Requests(
            arrival, inputs, outputs, name=name, prefixes=prefixes, adapter=adapter, priority=priority, follows=follows,
            think_s=think, images=self.take("images").astype(np.int64) if "images" in self else None,
        )  # fmt: skip
        return made, idle


def name_numbers(texts: NDArray[Any]) -> NDArray[np.uint64]:
    """A number for each of some short texts, 0 for an empty one: equal for equal ones, and of ten million different
    texts two are the same with a chance of three in a million. Raises ValueError where one is too long."""
    plain = np.ascontiguousarray(np.char.strip(texts).astype(TEXT))
    if np.char.str_len(plain).max(initial=0) >= WIDTH:  # perhaps cut off
        raise ValueError("too long")
    if plain.view(np.uint8).max(initial=0) > ASCII:
        raise ValueError("not ASCII")
    words = plain.view(np.uint64).reshape(len(plain), WIDTH // 8)
    add, first, second = (np.uint64(one) for one in _MIX)
    found = np.zeros(len(plain), np.uint64)
    with np.errstate(over="ignore"):
        for place in range(words.shape[1]):
            found = (found ^ words[:, place]) + add
            found = (found ^ (found >> np.uint64(30))) * first
            found = (found ^ (found >> np.uint64(27))) * second
            found ^= found >> np.uint64(31)
    found[found == 0] = 1
    found[words[:, 0] == 0] = 0
    return found


class OneSize:
    """The tokens of an image, which are the same for all images of a trace."""

    def __init__(self) -> None:
        self.tokens = 0
        self._found = False

    def other(self, images: NDArray[Any], tokens: NDArray[Any]) -> int | None:
        """The place of the first row with images of another size than those before it."""
        rows = np.flatnonzero(images > 0)
        if not rows.size:
            return None
        if not self._found:
            self.tokens, self._found = int(tokens[rows[0]]), True
        wrong = rows[tokens[rows] != self.tokens]
        return int(wrong[0]) if wrong.size else None

    def fault(self, tokens: float) -> str:
        return f"'{tokens:.0f}' is not the {self.tokens:,} of the images before it: those of a load have one size"


def texts_of(values: Iterable[Any]) -> NDArray[Any]:
    """Names of a JSON file as a column; whole numbers are names too, and null is none."""
    cells = ["" if value is None else str(value) for value in values]
    if any(len(cell) >= WIDTH or not cell.isascii() for cell in cells):
        raise ValueError("not a short name")
    return np.array(cells, TEXT)


def numbered(names: NDArray[np.uint64]) -> Ints:
    """Names as 0, 1, …, in the order in which they appear; -1 for none."""
    found, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    none = bool(found.size and found[0] == 0)
    rank = np.empty(found.size, np.int64)
    rank[np.argsort(first[none:]) + none] = np.arange(found.size - none)
    if none:
        rank[0] = -1
    return rank[inverse]


def followed(session: Ints) -> Ints:
    """Of each row: the row before it in its session; -1 where there is none."""
    order = np.argsort(session, kind="stable")
    sorted_ids = session[order]
    later = np.flatnonzero((sorted_ids[1:] == sorted_ids[:-1]) & (sorted_ids[1:] >= 0)) + 1
    follows = np.full(session.size, -1, np.int64)
    follows[order[later]] = order[later - 1]
    return follows
