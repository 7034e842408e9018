"""The techniques that plans can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.spec.answers import Result
from gnomon.techniques import Technique
from gnomon.techniques import techniques as known


@dataclass(frozen=True, kw_only=True)
class Techniques(Result):
    SCHEMA = "techniques"
    techniques: tuple[Mapping[str, Any], ...]


def techniques() -> Techniques:
    """All of them, by name: what each does, its parameters with their ranges, what it excludes, its papers."""
    return Techniques(techniques=tuple(_entry(one) for _, one in sorted(known().items())))


def _entry(one: Technique) -> dict[str, Any]:
    return {
        "name": one.name,
        "aliases": list(one.aliases),
        "title": one.title,
        "work": one.work,
        "idea": one.idea,
        "parameters": [
            {"name": p.name, "what": p.what, "default": p.default, "range": p.range} for p in one.parameters
        ],
        "excludes": list(one.excludes),
        "changes": sorted(one.changes),
        "papers": [trial.paper for trial in one.trials],
    }
