"""Plans or answers beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnomon.spec.answers import NotModelled, Result


@dataclass(frozen=True, kw_only=True)
class SideBySide(Result):
    """What differs between plans or answers, and their figures; the first is what the others are held against."""

    SCHEMA = "compare"
    title: str
    kind: str
    """`serving plan`, `training plan`, or the command whose answers these are."""
    names: tuple[str, ...]
    """As they were given, in order; every list below has one entry for each."""
    on: Mapping[str, Any]
    """The one load with its goals, or the one training job, that all plans were put under; empty for stored answers."""
    differs: tuple[Mapping[str, Any], ...]
    """Fields that are not the same in all: `field` and its `values`, null where one has none."""
    rows: tuple[Mapping[str, Any], ...]
    """Figures: `figure`, `unit`, `values` with their intervals, and `ratios` to the first."""
    plans: tuple[Mapping[str, Any], ...] = field(default=())
    """The plans in full; none of stored answers."""
    not_modelled: tuple[NotModelled, ...] = ()
    """Options of commands that change what they do and none of these figures."""
