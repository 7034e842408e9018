"""A training run with its failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from gnomon.spec.answers.base import Result
from gnomon.spec.answers.shapes import NumberRange, Time
from gnomon.spec.estimate import Estimate

Share = Annotated[Estimate, NumberRange(0.0, 1.0)]


class RunFailures(TypedDict):
    """How often the job fails."""

    name: str
    per_gpu_hour: float
    hardware_share: float
    mtbf_s: float
    """Of the whole job."""
    count: float
    """Expected over the run."""
    source: str


class RunCheckpoints(TypedDict):
    """What is saved, how long it takes, and how often."""

    bytes: float
    mode: str
    to: str
    stall_s: float
    write_s: float
    """After the stall, until it can be restarted from wherever a node is gone."""
    load_s: float
    every_steps: int
    interval_s: float
    best_every_steps: int
    best_interval_s: float
    young_interval_s: float
    goodput_at_best: float


class LostTime(TypedDict):
    """Shares of the elapsed time that do not count. With the goodput they add up to 1."""

    checkpoint_stalls: float
    lost_work: float
    detection: float
    restarts: float
    loading: float
    repairs: float


@dataclass(frozen=True, kw_only=True)
class RunReliability(Result):
    """Goodput of a run, its share of the elapsed time in steps that count, and where the rest goes."""

    goodput: Share
    days: Time
    """Elapsed: 90% of runs take no less and no more than its interval."""
    days_without_failures: float
    failures: Annotated[Mapping[str, Any], RunFailures]
    checkpoints: Annotated[Mapping[str, Any], RunCheckpoints]
    lost: Annotated[Mapping[str, float], LostTime]
    spares: int
    """Nodes beside those that train; they are paid for."""
