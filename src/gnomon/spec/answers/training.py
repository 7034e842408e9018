"""Training steps, and the one that a search chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from gnomon.spec.answers.base import UNKNOWN, NotModelled, Resolved, Result
from gnomon.spec.answers.run import RunReliability
from gnomon.spec.answers.shapes import OR_EMPTY, Degree, Inputs, Setting, Time
from gnomon.spec.answers.step import Shortage
from gnomon.spec.estimate import Estimate
from gnomon.spec.plan import Plan

DEGREES = ("tp", "pp", "vp", "cp", "ep", "dp")
JOB = ("model", "on", "dtype", "engine", "seq", "global_batch", "optimizer")
RECIPE = (*JOB, *DEGREES, "micro_batch", "recompute", "zero", "schedule", "sequence_parallel")
"""Inputs that say what is trained, and how a step is carried out."""
LENGTHS = (
    "distribution", "mean_tokens", "p50_tokens", "p90_tokens", "p99_tokens", "longest_tokens", "sequences_per_step",
    "tokens_per_step", "padded_tokens_per_step", "padding_share", "tokens_per_s", "padded_tokens_per_s", "imbalance_s",
    "slowest_cp_rank", "steps_drawn",
)  # fmt: skip
"""What an answer says of sequences that differ in length."""


class RankPeak(TypedDict):
    """A rank at its fullest moment."""

    peak_memory_bytes: float


class SlowerPlan(TypedDict):
    """The runner-up."""

    label: str
    step_time_s: float
    why: str


@dataclass(frozen=True, kw_only=True)
class TrainingReport(Result):
    """One training step. `step` holds its timeline and figures."""

    SCHEMA = "simulate.train"
    HIDDEN = frozenset({"step"})
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    step_time_s: Time
    mfu: float
    hfu: float
    tokens_per_s_per_gpu: float
    peak_memory_bytes: Estimate
    usable_memory_bytes: float
    reserved_memory_bytes: float = 0.0
    """What the allocator of the fullest rank reserves with its fragments; the peak where those were not measured."""
    runtime_memory_bytes: float = 0.0
    """Beside it: CUDA context, libraries, buffers of collectives. None of it is usable."""
    fits: bool
    cause: Shortage | None = None
    """What is short on the fullest rank, or on a host, where it does not fit."""
    ranks: tuple[Annotated[Mapping[str, Any], RankPeak], ...]
    """Every rank: its place in the pipeline, and its memory at the fullest moment."""
    host_bytes: float = 0.0
    """What techniques keep in the memory of one host."""
    nvme_bytes: float = 0.0
    """What they keep on its disks."""
    techniques: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Figures that techniques add, by name; seconds by one that ends in `_s`."""
    memory_parts: tuple[Mapping[str, float], ...]
    """By pipeline rank: weights, gradients, optimizer, activations, working."""
    bubble_fraction: float
    exposed_communication_s: float
    step_parts: Annotated[Mapping[str, float], ("pipeline_s", "optimizer_s")]
    """Seconds from the start to the last backward, then of what follows it."""
    micro_batches: Degree
    trainable_parameters: float = 0.0
    """Of the whole network: those that have gradients and states of the optimizer."""
    energy_j: float
    co2_g: float | None = None
    """Of that energy, where a cluster's file names the grid, which `grid` repeats."""
    grid: Mapping[str, str | float] = field(default_factory=dict)
    cost_usd: float
    lengths: Annotated[Mapping[str, Any], OR_EMPTY, LENGTHS] = field(default_factory=dict)
    """Where sequences differ in length: the distribution as it was drawn, tokens with padding and without, and what
    unequal micro-batches cost."""
    run: Annotated[Mapping[str, float], OR_EMPTY, ("steps", "days", "cost_usd", "energy_kwh")]
    """Of the whole run, where its tokens are given: steps, days, dollars, kilowatt-hours."""
    reliability: RunReliability | None = None
    """Failures, checkpoints and goodput of that run, where failures are asked for; `run` then has them in it."""
    bands: Mapping[str, Any] = field(default_factory=dict)
    """The ends of the intervals of figures that are plain numbers here, by name; those of `run` within it."""
    targets: tuple[str, ...]
    """What `gnomon export` can write the plan for, its own engine's first."""
    assumed: tuple[str, ...] = ()
    """What its techniques assume of the machine."""
    inputs: Annotated[Mapping[str, Any], Inputs, RECIPE]
    resolved: Resolved = UNKNOWN
    plan: Plan
    step: Any = None


@dataclass(frozen=True, kw_only=True)
class TrainingPlanReport(Result):
    SCHEMA = "plan.train"
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    objective: Mapping[str, Any] = field(default_factory=dict)
    """What was looked for: its name, its value for the best plan and the unit of that, the limits of the run, and what
    was compared."""
    mixture: Mapping[str, Any] = field(default_factory=dict)
    """On two kinds of chips, what each of them does: replicas, micro-batches, seconds and memory; empty on one."""
    plans_considered: int
    plans_fit: int
    plans_timed: int
    axes: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """What the plans differ in: by choice every value that was searched."""
    best: TrainingReport
    label: str
    """The best plan in a line."""
    bound_s: float
    """No plan that was not timed can be faster than this."""
    runner_up: Annotated[Mapping[str, Any], SlowerPlan, OR_EMPTY]
    rejected: Mapping[str, int]
    shortage_bytes: tuple[float, float]
    """What plans that do not fit lack on their fullest rank, least and most."""
    command: str
    """What starts the best plan on each node, except for their rendezvous; empty where its engine cannot express it."""
    inputs: Annotated[Mapping[str, Any], Inputs]
    resolved: Resolved = UNKNOWN
    """Of the cluster that was searched."""
