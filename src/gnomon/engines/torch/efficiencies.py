"""Measured memory bandwidth of PyTorch's kernels, relative to a plain streaming kernel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from gnomon.catalog.base import packaged

FILE = Path(__file__).with_name("efficiencies.yaml")
SOFTWARE = Path(__file__).with_name("software.yaml")


@cache
def software() -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Throughput of earlier versions' kernels relative to today's, by version, architecture and kind of operator."""
    found: dict[str, dict[str, dict[str, float]]] = packaged(SOFTWARE)["versions"]
    return found


@cache
def efficiencies() -> Mapping[str, float]:
    """Efficiency by kernel; names of backward kernels end in `.backward`."""
    found: dict[str, float] = packaged(FILE)["efficiencies"]
    return found
