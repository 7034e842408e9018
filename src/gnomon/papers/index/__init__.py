"""One folder a paper: `paper.yaml`, with `figures.py` where it is re-derived and `lab.json` where it was run."""

from __future__ import annotations

from pathlib import Path


def folders() -> list[str]:
    """The folders there are: slugs with `_` for `-`."""
    return sorted(one.name for one in Path(__path__[0]).iterdir() if one.is_dir() and one.name != "__pycache__")


def file_of(slug: str, name: str) -> Path:
    """A file of a paper, whether it is there or not."""
    return Path(__path__[0], slug.replace("-", "_"), name)


def place(slug: str, name: str) -> str:
    """The same as errors name it."""
    return f"papers/index/{slug.replace('-', '_')}/{name}"
