"""What techniques would bring to a plan, each by itself and in pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from gnomon.spec.answers.base import Result
from gnomon.spec.estimate import Estimate


class AppliedTo(TypedDict):
    """The plan that techniques were applied to."""

    plan: str
    model: str
    on: str
    engine: str


@dataclass(frozen=True, kw_only=True)
class TechniqueRow(Result):
    """A technique, or two together, in the best plan that has them, beside the best plan without."""

    name: str
    """As a plan names it, with the values of its parameters; two are joined by ` + `."""
    techniques: tuple[str, ...]
    papers: tuple[str, ...]
    gain: Estimate | None
    """How many times more work the same chips do; null where one of the two plans does not run."""
    helps: bool
    lossless: bool
    """Whether answers, or what is learned, stay as they are: no other number format."""
    label: str
    """The best plan with it; empty where there is none."""
    why: str


@dataclass(frozen=True, kw_only=True)
class HelpfulTechniques(Result):
    """Each technique on a plan's model, chips and work, the most helpful first, and pairs of those that help."""

    SCHEMA = "papers.apply"
    title: str
    work: str
    measure: str
    """What a gain is of: `step time`, or `highest rate within the goals`."""
    without: str
    """The best plan with no more techniques than the plan has."""
    techniques: tuple[TechniqueRow, ...]
    pairs: tuple[TechniqueRow, ...]
    best: tuple[str, ...]
    """The techniques of the row that helps most; empty where none does."""
    inputs: Annotated[Mapping[str, Any], AppliedTo]
