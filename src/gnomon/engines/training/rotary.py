"""The rotary embedding of a network, as its config.json says it in the layouts of transformers 4 and 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.errors import shown

BASE = 10000
"""The base where config.json says none, as transformers has it."""
PLAIN, LLAMA = "default", "llama3"
"""Kinds of scaling: none, and that of Llama 3.1."""
MOST = 1e300
"""No setting of a network is larger, and no larger whole number is a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotary:
    """A base, and how angles are scaled for longer contexts."""

    base: float = 0.0
    """0 where nothing says it."""
    odd_base: str = ""
    """A base that is no positive number, as it is written."""
    kind: str = PLAIN
    """`rope_type`: default, linear, llama3, yarn and so on."""
    scaling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def whole_base(self) -> int:
        """0 where the base is none, or nothing says it."""
        return int(self.base) if self.base == self.base // 1 else 0

    def number(self, name: str) -> float:
        """A number of the scaling; 0 where it is none."""
        value: Any = self.scaling.get(name)
        return float(value) if is_number(value) else 0.0

    def missing(self, *kinds: str, whole: bool = True) -> list[str]:
        """What an engine cannot express that scales in these ways, and takes whole bases alone or any."""
        found = []
        if self.odd_base or (whole and self.base and not self.whole_base):
            found.append(f"a rotary base of {self.odd_base or shown(self.base)}")
        if self.kind not in (PLAIN, *kinds) or (self.kind in kinds and not self.number("factor")):
            found.append(f"rotary embeddings of type {shown(self.kind)}")
        return found


def rotary(config: Mapping[str, Any]) -> Rotary:
    """Of the fields of a config.json: `rope_theta` beside `rope_scaling`, or both in `rope_parameters`."""
    scaling: Any = config.get("rope_parameters") or config.get("rope_scaling")
    scaling = scaling if isinstance(scaling, Mapping) else {}
    base: Any = config.get("rope_theta")
    base = scaling.get("rope_theta") if base is None else base
    kind = scaling.get("rope_type") or scaling.get("type") or PLAIN
    if any(isinstance(value, Mapping) for value in scaling.values()):
        kind = "several, by kind of layer"
    good = base is None or is_number(base)
    return Rotary(
        base=base if base is not None and good else 0.0,
        odd_base="" if good else shown(base),
        kind=kind if isinstance(kind, str) else shown(kind),
        scaling=scaling,
    )


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST
