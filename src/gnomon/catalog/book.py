"""Lists of named entries, found in the text by name and parsed one at a time: one chip of 100 costs one chip."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

_ENTRY = re.compile(r"^- name: *(.+?) *$", re.MULTILINE)
_ALIASES = re.compile(r"^  aliases: *\[([^\]]*)\]", re.MULTILINE)
_REMARK = re.compile(r"\([^)]*\)")
_GAPS = re.compile(r"[\s_/-]+")
_MAKERS = frozenset(
    (
        "nvidia",
        "geforce",
        "tesla",
        "amd",
        "instinct",
        "intel",
        "habana",
        "google",
        "huawei",
        "aws",
        "sambanova",
        "apple",
        "qualcomm",
    )
)


def squash(name: str) -> str:
    """A name as it is compared: case, gaps, remarks in brackets and the maker do not matter.

    >>> squash("NVIDIA GeForce RTX 4090"), squash("RTX-4090"), squash("B200 (power limited)")
    ('rtx4090', 'rtx4090', 'b200')
    """
    words = _GAPS.split(_REMARK.sub(" ", name.casefold()).replace("®", "").replace("™", ""))
    return "".join(word for word in words if word not in _MAKERS)


@dataclass(frozen=True)
class Book:
    """The entries of YAML files that are lists of mappings beginning with `name`."""

    files: tuple[Path, ...]
    fold: Callable[[str], str] = squash
    """What makes two spellings one."""

    @cached_property
    def _texts(self) -> dict[str, str]:
        """The text of each entry by its name, in the order of the files."""
        found: dict[str, str] = {}
        for file in self.files:
            text = file.read_text(encoding="utf-8")
            marks = list(_ENTRY.finditer(text))
            ends = [mark.start() for mark in marks[1:]] + [len(text)]
            found |= {mark[1]: text[mark.start() : end] for mark, end in zip(marks, ends, strict=True)}
        return found

    @cached_property
    def spellings(self) -> dict[str, str]:
        """Every name and alias as written, with the name it stands for; names before aliases."""
        found = {name: name for name in self._texts}
        for name, text in self._texts.items():
            listed = _ALIASES.search(text)
            aliases = [part.strip() for part in listed[1].split(",")] if listed else []
            found |= {alias: name for alias in aliases if alias and alias not in found}
        return found

    @cached_property
    def _folded(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for spelling, name in self.spellings.items():
            found.setdefault(self.fold(spelling), name)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def find(self, name: str) -> str | None:
        """The name of the entry that a spelling stands for."""
        return self.spellings.get(name) or self._folded.get(self.fold(name))

    def entry(self, name: str) -> dict[str, Any]:
        """One entry, by its own name, as its file has it."""
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        entries: list[dict[str, Any]] = yaml.load(self._texts[name], Loader=loader)
        return entries[0]


def book(files: Iterable[Path], fold: Callable[[str], str] = squash) -> Book:
    return Book(tuple(sorted(files)), fold)
