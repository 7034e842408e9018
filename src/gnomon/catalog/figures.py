"""Figures of the catalog's files: data-sheet units made into the units used inside, each with where it is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gnomon.catalog.book import Book

READ = "read"
CONFIDENCES = (READ, "recalled", "estimated", "announced")
MIB, GIB = 2.0**20, 2.0**30


def tens(value: float, power: int) -> float:
    """A figure times a power of ten, without a rounding of its own: 989.4 TFLOP/s are 9.894e14 to the bit."""
    text = repr(value)
    return value * 10.0**power if "e" in text else float(f"{text}e{power}")


@dataclass
class SheetFigures:
    """The fields of one entry; taking one notes its source and, where it was not read, how it is known."""

    entry: Mapping[str, Any]
    sources: dict[str, str] = field(default_factory=dict)
    confidence: dict[str, str] = field(default_factory=dict)

    def note(self, field_name: str, as_name: str) -> None:
        """Notes where a field is from under the name it has inside."""
        given = _source_of(self.entry, field_name)
        self.sources[as_name] = f"{given['source']} ({given['date']})"
        if given["confidence"] != READ:
            self.confidence[as_name] = given["confidence"]

    def take(self, field_name: str, as_name: str, power: int = 0) -> float:
        """A number times a power of ten."""
        self.note(field_name, as_name)
        return tens(self.entry[field_name], power)

    def binary(self, field_name: str, as_name: str, unit: float) -> float:
        self.note(field_name, as_name)
        return float(self.entry[field_name]) * unit

    def whole(self, field_name: str, as_name: str) -> int:
        self.note(field_name, as_name)
        return int(self.entry[field_name])

    def table(self, field_name: str, as_name: str, power: int) -> dict[str, float]:
        """Numbers by number format."""
        given = self.entry.get(field_name) or {}
        for key in given:
            self.note(f"{field_name}.{key}", f"{as_name}.{key}")
        return {key: tens(value, power) for key, value in given.items()}


def _source_of(entry: Mapping[str, Any], field_name: str) -> dict[str, str]:
    """Source, date and confidence of a field: its own, its group's, or the entry's."""
    own = entry.get("sources") or {}
    given = own.get(field_name, own.get(field_name.partition(".")[0], {}))
    if isinstance(given, str):
        given = _shared(given) or {"source": given}
    general = {name: entry[name] for name in ("source", "date", "confidence") if name in entry}
    return {name: str(value) for name, value in ({"date": "undated", "confidence": READ} | general | given).items()}


@cache
def _shared(name: str) -> Mapping[str, Any] | None:
    """What sources.yaml has under a name."""
    return _sources().entry(name) if name in _sources().names else None


@cache
def _sources() -> Book:
    return Book("sources")
