"""One broken input: a command line, the files it finds, and the place its error must name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Content = bytes | str | Callable[[Path], None]
"""A file's bytes, its text, or what makes something else of its path: a folder, a pipe, a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    words: tuple[str, ...]
    place: str
    files: Mapping[str, Content] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def hole(path: Path) -> None:
    """Three gigabytes of nothing."""
    with path.open("wb") as file:
        file.truncate(3 * 2**30)


def dangling(path: Path) -> None:
    path.symlink_to("nothing-there")
