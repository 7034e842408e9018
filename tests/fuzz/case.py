"""One fuzzed input: a command line and the files it finds. A seed makes it, always the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    seed: int
    kind: str
    words: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


Draw = random.Random
Made = tuple[list[str], dict[str, bytes]]
"""The words of a command line, and files by name."""
Maker = Callable[[Draw], Made]
