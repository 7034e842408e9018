"""Plans as files, and predictions beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from gnomon.spec.answers.base import Result
from gnomon.spec.answers.shapes import Signed
from gnomon.spec.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Exported(Result):
    SCHEMA = "export"
    files: Mapping[str, str]
    command: str
    engine: str
    version: str
    not_expressed: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Why it would not run, where it was asked for all the same."""


class ComparedFigure(TypedDict):
    """One figure, measured and predicted."""

    part: str
    rate_per_s: float | None
    what: str | None
    measured: float
    predicted: float
    error: Signed | None
    unit: str


class Comparison(ComparedFigure, total=False):
    """With the interval of the prediction, where it has one."""

    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Verified(Result):
    """Measured beside predicted, part by part."""

    SCHEMA = "verify"
    title: str
    parts: tuple[Annotated[Mapping[str, Any], Comparison], ...]
    conditions: Annotated[Mapping[str, Any], Mapping[str, str]]
    measured: Mapping[str, Any]
    plan: Plan | None = None
    """What ran."""

    def to_dict(self) -> dict[str, Any]:
        written = Result.to_dict(self)
        return written if self.plan else {name: value for name, value in written.items() if name != "plan"}
