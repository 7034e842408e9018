"""Lists of named entries, found by name and parsed one at a time: one chip of 100 costs one chip.

A book is a file of JSON lines that `gnomon.catalog.build` makes of YAML: names and spellings first, then one entry per
line, in the order of the names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gnomon.catalog.base import DATA

_REMARK = re.compile(r"\([^)]*\)")
_GAPS = re.compile(r"[\s_/-]+")
_MAKERS = frozenset((
    "nvidia", "geforce", "tesla", "amd", "instinct", "intel", "habana", "google", "huawei", "aws", "sambanova",
    "apple", "qualcomm",
))  # fmt: skip
BOOKS = DATA / "books"


def squash(name: str) -> str:
    """A name as it is compared: case, gaps, remarks in brackets and the maker do not matter.

    >>> squash("NVIDIA GeForce RTX 4090"), squash("RTX-4090"), squash("B200 (power limited)")
    ('rtx4090', 'rtx4090', 'b200')
    """
    words = _GAPS.split(_REMARK.sub(" ", name.casefold()).replace("®", "").replace("™", ""))
    return "".join(word for word in words if word not in _MAKERS)


@dataclass(frozen=True)
class Book:
    """Entries by name, of one of the catalog's built files."""

    title: str
    """The file's name, without its ending."""
    fold: Callable[[str], str] = squash
    """What makes two spellings one."""

    @cached_property
    def _lines(self) -> list[bytes]:
        return (BOOKS / f"{self.title}.jsonl").read_bytes().splitlines()

    @cached_property
    def _head(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads(self._lines[0])
        return found

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: line for line, name in enumerate(self.names, start=1)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names in the order of the YAML files."""
        return tuple(self._head["names"])

    @property
    def spellings(self) -> Mapping[str, str]:
        """Every name and alias as written, with the name it stands for; names before aliases."""
        found: Mapping[str, str] = self._head["spellings"]
        return found

    def find(self, name: str) -> str | None:
        """The name of the entry that a spelling stands for."""
        return self.spellings.get(name) or self._head["folded"].get(self.fold(name))

    def known(self, what: str) -> Mapping[str, Any]:
        """What the builder found out about every entry, by name."""
        found: Mapping[str, Any] = self._head[what]
        return found

    def entry(self, name: str) -> dict[str, Any]:
        """One entry, by its own name, as its YAML has it."""
        found: dict[str, Any] = json.loads(self._lines[self._places[name]])
        return found
