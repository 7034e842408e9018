"""One step: what it takes, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from gnomon.spec.answers.base import UNKNOWN, NotModelled, Resolved, Result
from gnomon.spec.answers.shapes import Inputs, Signed, Time
from gnomon.spec.estimate import Estimate
from gnomon.spec.traced import Traced

MATRICES = ("gemm", "conv", "moe")
"""Kinds of operators that multiply matrices."""


@dataclass(frozen=True, kw_only=True)
class OperatorTime(Result):
    """One line of a breakdown: all runs of one operator in the step."""

    op: str
    kind: str
    time_s: Estimate
    bound: str
    count: int
    flops: float
    bytes: float
    arithmetic: str = ""
    """The number format whose rate its kernel has; empty where several kernels or none are behind it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "op", backward_name(self.op, self.kind))


def backward_name(op: str, kind: str) -> str:
    """An operator of the backward pass as it is called in the field: the GEMMs of a layer are `dgrad` (the gradient of
    its input) and `wgrad` (of its weights), everything else is `backward`.

    >>> backward_name("ffn.up.by_weight", "gemm"), backward_name("attention.core.by_input", "attention_backward")
    ('ffn.up.wgrad', 'attention.core.backward')
    """
    head, _, last = op.rpartition(".")
    words = {"by_input": "dgrad" if kind in MATRICES else "backward", "by_weight": "wgrad"}
    return f"{head}.{words[last]}" if head and last in words else op


@dataclass(frozen=True, kw_only=True)
class Shortage(Result):
    """What does not fit: the first part of a rank's memory that needs more than those before it leave."""

    part: str
    """`weights`, `working memory`, `cache`; of training `states`, `working memory`, `fragmentation` (bytes that the
    allocator would reserve); or a tier of a host, `host memory` or `NVMe`."""
    needs_bytes: float
    left_bytes: float
    """Of what is usable, beside the parts before it."""
    sequences: int = 0
    """Sequences whose cache, or whose activations, it is."""
    tokens: int = 0
    """Tokens of each sequence."""


class PipelineStages(TypedDict):
    """A pipeline: layers of its stages, and what it holds with so many batches under way."""

    layers: tuple[int, ...]
    busiest_stage_s: float
    batches: int
    most_tokens_per_s: float


class ExpertRanks(TypedDict):
    ranks: int
    busiest_over_mean: float


class ExpertLoad(ExpertRanks, total=False):
    """How unevenly ranks of experts are visited."""

    uneven: bool
    """Some experts are more popular than others."""


class Parallel(TypedDict, total=False):
    pipeline: PipelineStages
    experts: ExpertLoad


@dataclass(frozen=True, kw_only=True)
class Prediction(Result):
    SCHEMA = "predict"
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    time_s: Time
    memory_bytes: Estimate
    energy_j: Estimate
    clock_slowdown: float = 1.0
    """How many times lower the clock is than the highest; above 1 only of a step that is asked for as sustained."""
    co2_g: Estimate | None = None
    """Of that energy, where a cluster's file names the grid: what the chips draw, not what is around them."""
    cost_usd: Estimate
    tokens_per_s: float
    bound: str
    bound_share: float
    fits: bool = True
    """Whether the sequences asked for have room in memory; the time is that of the step if they had."""
    cause: Shortage | None = None
    """What is short where it does not fit."""
    memory_parts: Mapping[str, float]
    memory_total_bytes: float
    memory_usable_bytes: float
    """What the engine may take of it: the step fits where it needs no more."""
    breakdown: tuple[OperatorTime, ...]
    parallel: Annotated[Mapping[str, Any], Parallel] = field(default_factory=dict)
    """What several ranks make of the step: the stages of a pipeline with the most it can hold, and how unevenly
    experts on different ranks are visited."""
    inputs: Annotated[Mapping[str, Any], Inputs, ("model", "on", "phase", "dtype")]
    resolved: Resolved = UNKNOWN


@dataclass(frozen=True, kw_only=True)
class ModulePrediction(Prediction):
    """A step of a module. `breakdown` is by module path, `operators` by kernel; `traced` has every call."""

    HIDDEN = frozenset({"traced"})
    operators: tuple[OperatorTime, ...] = ()
    parameters: int = 0
    flops: float = 0.0
    kernels: int = 0
    host_s: float = 0.0
    """What the host needs to launch it all; the step is no faster."""
    unknown: tuple[str, ...] = ()
    """Operators that no rule describes, priced as one pass over their operands."""
    traced: Traced | None = None


@dataclass(frozen=True, kw_only=True)
class Change(Result):
    """A way to make it fit."""

    what: str
    kv_tokens: int
    kv_bytes: float
    max_batch_1k: int = 0
    """Sequences of 1,025 tokens at once, or of the longest where that is shorter."""
    flags: Mapping[str, Any]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Fit(Result):
    SCHEMA = "fit"
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    fits: bool
    cause: Shortage | None = None
    """What is short where it does not fit."""
    usable_bytes: float
    total_bytes: float
    parts: Annotated[Mapping[str, float], ("weights",)]
    kv_blocks: int
    kv_tokens: int
    max_context: int
    max_batch: int
    max_batch_1k: int = 0
    """Sequences of 1,025 tokens at once, or of the context asked for where that is shorter."""
    margin_bytes: Signed = 0.0
    """What is left beside one sequence of the context asked for; below zero where it is lacking."""
    slack_bytes: float = 0.0
    """By how much the engine may find more or less room than estimated, 90% of the time."""
    close: bool = False
    """Whether the margin is within that: too close to call."""
    block_tokens: int = 16
    host_bytes: float = 0.0
    """Memory of each host that weights take which are not on the chips, and what techniques keep there."""
    nvme_bytes: float = 0.0
    """What techniques keep on the disks of each host."""
    changes: tuple[Change, ...]
    techniques: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Figures that techniques add, by name; seconds by one that ends in `_s`."""
    inputs: Annotated[Mapping[str, Any], Inputs, ("model", "on", "dtype", "context")]
    resolved: Resolved = UNKNOWN
