"""Fitted profiles of chips, as data; what they mean is the cost model's business."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gnomon.catalog.base import DATA
from gnomon.errors import CalibrationError
from gnomon.paths import home

MAX_BYTES = 1_000_000


def user_profiles() -> Path:
    """The folder of profiles that `gnomon calibrate` made on this machine."""
    return home() / "profiles"


def read_profiles() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of every profile: the shipped ones, then the user's own."""
    for folder in (DATA / "profiles", user_profiles()):
        for path in sorted(folder.glob("*.yaml")):
            yield str(path), read_profile(path)


def read_profile(path: Path) -> dict[str, Any]:
    """One profile file as plain data."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CalibrationError("is too large for a profile", where=str(path))
        content = yaml.load(path.read_bytes(), Loader=loader)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as problem:
        first = str(problem).splitlines()[0]
        raise CalibrationError(f"cannot be read: {first}", where=str(path), hint="Remove it or mend it.") from None
    if not isinstance(content, dict):
        raise CalibrationError("is not a profile", where=str(path), hint="Remove it or mend it.")
    return content
