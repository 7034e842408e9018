"""Shipped profiles of chips, as data; what they mean is the cost model's business."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gnomon.catalog.base import DATA


def shipped_profiles() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of every shipped profile."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted((DATA / "profiles").glob("*.yaml")):
        yield path.name, yaml.load(path.read_bytes(), Loader=loader)
