"""The contract of a serving policy: its inputs and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gnomon.cost.step import StepCost
from gnomon.sim.serving.curve import Curves
from gnomon.sim.serving.run import ServingRun
from gnomon.spec.serving import ServingLimits
from gnomon.spec.workload import Requests

Progress = Callable[[int], None]
"""Called periodically with the number of requests that have finished so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One call of the scheduler. Requests go by their index.

    A call that found nothing to run but took requests out of the batch has no tokens, and ends
    where it starts.
    """

    scheduled_s: float
    start_s: float
    end_s: float
    decodes: int
    decode_context: int
    """Tokens the decodes had cached before the step, together."""
    chunks: tuple[tuple[int, int], ...]
    """Prompt pieces: new tokens, tokens cached before them."""
    tokens: tuple[tuple[int, int], ...]
    """(request, tokens of it the step ran), in the order of the batch."""
    preempted: tuple[int, ...] = ()


@dataclass(slots=True)
class Recorder:
    """Keeps every step of a run; with one, the simulator walks step by step instead of jumping."""

    steps: list[StepRecord] = field(default_factory=list)

    def add(self, step: StepRecord) -> None:
        self.steps.append(step)


class Policy(Protocol):
    """Decides what each step of one replica runs.

    A policy is deterministic, makes exactly `output_tokens` tokens for each request, and may count
    on requests and limits that `check` has passed.
    """

    def __call__(
        self,
        requests: Requests,
        cost: StepCost,
        limits: ServingLimits,
        *,
        record: Recorder | None = None,
        progress: Progress | None = None,
        curves: Curves | None = None,
    ) -> ServingRun: ...
