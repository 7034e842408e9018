"""Measured memory bandwidth of PyTorch's kernels, relative to a plain streaming kernel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gnomon.catalog.base import packaged

FILE = Path(__file__).with_name("efficiencies.yaml")


@cache
def efficiencies() -> Mapping[str, float]:
    """Efficiency by kernel; names of backward kernels end in `.backward`."""
    found: dict[str, float] = packaged(FILE)["efficiencies"]
    return found
