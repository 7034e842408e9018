"""Reading the catalog's own files. Nothing is read before it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def packaged(file: Path) -> Any:
    """What a YAML file says that ships with Gnomon, in the catalog or beside the module that it is for."""
    import yaml

    return yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def fold(name: str) -> str:
    """A name as it is compared: case, spaces, dashes and underscores do not matter."""
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())
