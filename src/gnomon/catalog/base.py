"""Reading the catalog's own files. Nothing is read before it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def read_entries(name: str) -> list[dict[str, Any]]:
    """The entries of one of the catalog's YAML files."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries: list[dict[str, Any]] = yaml.load((DATA / name).read_bytes(), Loader=loader)
    return entries


def fold(name: str) -> str:
    """A name as it is compared: case, spaces, dashes and underscores do not matter."""
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())
