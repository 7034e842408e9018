"""The nodes an opened answer is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerNode:
    """One number, how it is made and where it comes from. `level`: metric, phase, operator or part."""

    name: str
    level: str
    shown: str
    formula: str = ""
    provenance: str = ""
    source: str = ""
    parts: tuple[AnswerNode, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("name", "level", "shown", "formula", "provenance", "source")}
        return plain | {"parts": [part.to_dict() for part in self.parts]}


def metric(
    name: str, shown: str, formula: str, estimate: Mapping[str, Any], parts: tuple[AnswerNode, ...] = ()
) -> AnswerNode:
    return AnswerNode(
        name=name,
        level="metric",
        shown=shown,
        formula=formula,
        provenance=str(estimate.get("provenance", "")),
        source=str(estimate.get("source", "")),
        parts=parts,
    )
