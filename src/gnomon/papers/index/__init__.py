"""One folder per paper: `paper.yaml`, with `figures.py` where it is reproduced and `lab.json` where it was run."""

from __future__ import annotations

from pathlib import Path


def folders() -> list[str]:
    """Names of all folders: slugs with `_` for `-`."""
    return sorted(one.name for one in Path(__path__[0]).iterdir() if one.is_dir() and one.name != "__pycache__")


def file_of(slug: str, name: str) -> Path:
    """The path of a paper's file, which may not exist."""
    return Path(__path__[0], slug.replace("-", "_"), name)


def place(slug: str, name: str) -> str:
    """A paper's file as errors name it."""
    return f"papers/index/{slug.replace('-', '_')}/{name}"
