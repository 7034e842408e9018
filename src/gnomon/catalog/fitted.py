"""Shipped profiles of chips; what they mean is the cost model's business."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.catalog.base import DATA
from gnomon.catalog.book import Book

PROFILES = DATA / "profiles"


def profile_paths() -> tuple[Path, ...]:
    """Files of the shipped profiles, named by chip, and by framework where they are one's own."""
    return tuple(PROFILES / f"{name}.yaml" for name in _profiles().names)


def profile_kinds(path: Path) -> Sequence[str]:
    """Kinds of operators that a shipped profile has families of."""
    found: Sequence[str] = _profiles().known("kinds")[path.stem]
    return found


def profile_data(path: Path) -> dict[str, Any]:
    """What a shipped profile's file says."""
    return {key: value for key, value in _profiles().entry(path.stem).items() if key != "name"}


def forget_profiles() -> None:
    """Read them again: the book was made again."""
    _profiles.cache_clear()


@cache
def _profiles() -> Book:
    return Book("profiles")
