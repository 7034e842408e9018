"""What trying an idea answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.api.results import Result
from gnomon.spec import Estimate

NO_CHANGE = 0.005
"""A gain below this is none."""


@dataclass(frozen=True, kw_only=True)
class Tried(Result):
    """An idea against doing without it. `gain` is how many times as quick a step is, with its band; it is null where
    one of the two does not run."""

    SCHEMA = "try"
    HIDDEN = frozenset({"reports"})
    title: str
    paper: str
    technique: str
    idea: str
    against: str
    plain: Mapping[str, Any] | None
    applied: Mapping[str, Any] | None
    gain: Estimate | None
    memory_saved_bytes: float | None
    note: str
    helps: bool
    verdict: str
    inputs: Mapping[str, Any]
    reports: tuple[Any, Any] = (None, None)
