"""How fast PyTorch's own kernels stream memory beside a plain one, as measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gnomon.catalog.base import packaged

FILE = Path(__file__).with_name("efficiencies.yaml")


@cache
def efficiencies() -> Mapping[str, float]:
    """By kernel; backward ones end in `.backward`."""
    found: dict[str, float] = packaged(FILE)["efficiencies"]
    return found
