"""Shipped profiles of chips; what they mean is the cost model's business."""

from __future__ import annotations

from pathlib import Path

from gnomon.catalog.base import DATA

PROFILES = DATA / "profiles"


def profile_paths() -> tuple[Path, ...]:
    """Files of the shipped profiles, named by chip, and by framework where they are one's own."""
    return tuple(sorted(PROFILES.glob("*.yaml")))
