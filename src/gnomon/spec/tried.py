"""What trying an idea answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from gnomon.spec.answers.base import Result
from gnomon.spec.answers.shapes import Degree, Inputs, Signed, Time
from gnomon.spec.answers.training import DEGREES
from gnomon.spec.estimate import Estimate

MODEL = "--model"
"""The flag of the model, which other commands take without one."""
NO_CHANGE = 0.005
"""A gain below this is none."""
NONE = "No benefit here"
"""How a verdict begins that says so."""


def times(gain: Estimate) -> str:
    """`2.24x faster (1.90 to 2.60, 90%)`, `1.06x slower` or `equal`."""
    if abs(gain.value - 1) <= NO_CHANGE:
        return "equal"
    low, value, high = gain.low, gain.value, gain.high
    word = "faster"
    if value < 1:
        low, value, high, word = 1 / high, 1 / value, 1 / low, "slower"
    return f"{value:.2f}x {word}" + (f" ({low:.2f} to {high:.2f}, 90%)" if low < high else "")


class ServedSide(TypedDict):
    """A deployment with a technique or without it."""

    step_time_s: Time
    prompt_time_s: Time
    weight_bytes: float
    sessions: int
    techniques: tuple[str, ...]
    facts: Mapping[str, Mapping[str, float]]


SETTINGS = ("micro_batch", "recompute", "zero", "schedule", "sequence_parallel", "optimizer")


class TrainedSide(TypedDict):
    """A training plan with a technique or without it."""

    step_time_s: Time
    mfu: float
    peak_memory_bytes: float
    cost_usd: float
    degrees: Annotated[Mapping[str, Any], Inputs, DEGREES]
    settings: Annotated[Mapping[str, Any], Inputs, SETTINGS]
    techniques: tuple[str, ...]


class TriedServing(TypedDict):
    """What serving was tried with."""

    model: str
    on: str
    batch: Degree
    context: int
    dtype: str | None


class TriedTraining(TypedDict):
    """What training was tried with."""

    model: str
    on: str
    dtype: str
    optimizer: str
    engine: str
    seq: Degree
    global_batch: Degree


@dataclass(frozen=True, kw_only=True)
class TechniqueComparison(Result):
    """An idea against doing without it. `gain` is how many times faster a step is, with its interval; it is null where
    one of the two does not run, which is then the answer. `plain` and `applied` are null where that side does not fit
    or does not run."""

    SCHEMA = "try"
    HIDDEN = frozenset({"reports"})
    title: str
    paper: str
    technique: str
    idea: str
    against: str
    plain: Annotated[Mapping[str, Any] | None, ServedSide | TrainedSide | None]
    applied: Annotated[Mapping[str, Any] | None, ServedSide | TrainedSide | None]
    gain: Estimate | None
    memory_saved_bytes: Signed | None
    note: str
    helps: bool
    verdict: str
    missing: Mapping[str, str] = field(default_factory=dict)
    """Of `plain` and `applied`, why one has no figures."""
    assumed: tuple[str, ...] = ()
    """What the technique assumes of the machine."""
    inputs: Annotated[Mapping[str, Any], TriedServing | TriedTraining]
    reports: tuple[Any, Any] = (None, None)

    @property
    def serving(self) -> bool:
        """Whether it is a deployment that was tried, and not a training plan."""
        return any("prompt_time_s" in side for side in (self.plain, self.applied) if side) or "batch" in self.inputs
