"""What the public functions return. `to_dict()` is the JSON of the same command."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from gnomon.spec.estimate import Estimate
from gnomon.spec.plan import Plan
from gnomon.spec.plan_dict import plan_to_dict
from gnomon.spec.workload import Goal


@dataclass(frozen=True, slots=True, kw_only=True)
class NotModelled:
    """Something that was given and has no effect on the answer, and why."""

    option: str
    """As it was written: `enable_prefix_caching=true`, `--seed 3`, `field spot`."""
    why: str


def _plain(value: Any) -> Any:
    """Estimates, plans and nested containers as plain JSON values; what is not a number becomes null."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Goal):
        return {"name": value.name, "limit_s": value.limit_s}
    if isinstance(value, NotModelled):
        return {"option": value.option, "why": value.why}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


REPORT = "gnomon.report"
"""The package that shows answers. It knows all of them and is imported when one is first shown, so that nothing here
depends on it. It has `render(payload)`, `in_a_line(payload)`, and in `html` `document(payload)` and
`fragment(payload)`."""


class Result:
    """A command's answer. Subclasses are frozen dataclasses; every public field is in the JSON.

    `str()` is the text that the command prints, `repr()` a line, `to_html()` a page, and a notebook shows tables and
    plots. A part of an answer, which has no schema of its own, has the line alone. `not_modelled`, where an answer has
    it, lists what was given and has no effect on it, with the reason.
    """

    SCHEMA: ClassVar[str] = ""
    HIDDEN: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        """Keep `dataclass` from giving the class a `repr` with all its fields."""
        super().__init_subclass__()
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __str__(self) -> str:
        text: str = import_module(REPORT).render(self.to_dict()) if self.SCHEMA else repr(self)
        return text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({import_module(REPORT).in_a_line(self.to_dict())})"

    def to_html(self, *, command: str = "") -> str:
        """One page that needs nothing beside it, with the JSON inside; the same answer gives the same bytes.

        `command` is what the answer was asked with, as the page is to show it.
        """
        if not self.SCHEMA:
            raise TypeError(f"{type(self).__name__} is a part of an answer and has no page of its own")
        page: str = import_module(f"{REPORT}.html").document(_plain(self.to_dict()), command=command)
        return page

    def _repr_html_(self) -> str | None:
        """What a notebook shows below a cell."""
        found: str | None = import_module(f"{REPORT}.html").fragment(_plain(self.to_dict())) if self.SCHEMA else None
        return found

    def to_dict(self) -> dict[str, Any]:
        names = [name for name in self.__dataclass_fields__ if name not in self.HIDDEN]  # type: ignore[attr-defined]
        head = {"schema": f"gnomon.{self.SCHEMA}/1"} if self.SCHEMA else {}
        return head | {name: _plain(getattr(self, name)) for name in names}


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


@dataclass(frozen=True, kw_only=True)
class Shortage(Result):
    """What does not fit: the first part of a rank's memory that needs more than those before it leave."""

    part: str
    """`weights`, `working memory`, `cache`; of training `states`, `working memory`; or `host memory`."""
    needs_bytes: float
    left_bytes: float
    """Of what is usable, beside the parts before it."""
    sequences: int = 0
    """Those whose cache, or whose activations, it is."""
    tokens: int = 0
    """Of each."""


@dataclass(frozen=True, kw_only=True)
class Prediction(Result):
    SCHEMA = "predict"
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    time_s: Estimate
    memory_bytes: Estimate
    energy_j: Estimate
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
    parallel: Mapping[str, Any] = field(default_factory=dict)
    """What several ranks make of the step: the stages of a pipeline with the most it can hold, and how unevenly
    experts on different ranks are visited."""
    inputs: Mapping[str, Any]


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
    parts: Mapping[str, float]
    kv_blocks: int
    kv_tokens: int
    max_context: int
    max_batch: int
    max_batch_1k: int = 0
    """The same of 1,025 tokens each, or of those asked for where that is shorter."""
    margin_bytes: float = 0.0
    """What is left beside one sequence of the context asked for; below zero where it is lacking."""
    slack_bytes: float = 0.0
    """By how much the engine may find more or less room than estimated, 90% of the time."""
    close: bool = False
    """Whether the margin is within that: too close to call."""
    block_tokens: int = 16
    changes: tuple[Change, ...]
    techniques: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Figures that techniques add, by name; seconds by one that ends in `_s`."""
    inputs: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class ServingReport(Result):
    """A simulated load. `run` holds the arrays of every request."""

    SCHEMA = "simulate.serve"
    HIDDEN = frozenset({"run"})
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    requests: int
    saturation_rps: float = 0.0
    """Requests a second that the replica sustains at most; 0 where it is not known."""
    overloaded: bool = False
    """Requests arrive faster than they are served: times grow with the length of the load."""
    settled: bool | None = None
    """Whether the run is long enough (six lifetimes of its requests) to show a steady state and not only an empty
    engine that fills; None where all requests arrive at one moment."""
    makespan_s: float
    ttft_s: Mapping[str, float]
    tpot_s: Mapping[str, float]
    e2e_s: Mapping[str, float]
    queue_s: Mapping[str, float]
    output_tokens_per_s: float
    total_tokens_per_s: float
    energy_j: float
    power_w: float = 0.0
    """Of all chips of the replica, on average over the run."""
    co2_g: float | None = None
    """Of that energy, where a cluster's file names the grid, which `grid` repeats."""
    grid: Mapping[str, str | float] = field(default_factory=dict)
    cost_usd: float
    usd_per_mtok: float
    preemptions: int
    steps: int
    busy_fraction: float
    kv_blocks: int
    peak_kv_blocks: int
    inputs: Mapping[str, Any]
    bands: Mapping[str, Any] = field(default_factory=dict)
    run: Any = None


@dataclass(frozen=True, kw_only=True)
class PlanScore(Result):
    """A plan and its figures under the load."""

    plan: Plan
    feasible: bool
    usd_h: float
    usd_per_mtok: float
    """For a million output tokens, as is energy."""
    wh_per_mtok: float
    power_w: float
    """Of all its chips at the rate it is planned for."""
    output_tokens_per_s: float
    ttft_s: Mapping[str, float]
    tpot_s: Mapping[str, float]
    e2e_s: Mapping[str, float] = field(default_factory=dict)
    max_rate_per_s: float | None
    margin: Mapping[str, float]
    label: str
    predicted: Mapping[str, Any] = field(default_factory=dict)
    """The same figures as estimates with their intervals; times by statistic. Of plans beside the best
    only the runner-up has them."""

    def to_dict(self) -> dict[str, Any]:
        return Result.to_dict(self) | {"plan": plan_to_dict(self.plan)}


@dataclass(frozen=True, kw_only=True)
class PlanReport(Result):
    SCHEMA = "plan.serve"
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    plans_considered: int
    plans_fit: int
    plans_simulated: int
    requests_simulated: int
    """Requests that the best plan was judged on."""
    requests_searched: int
    """Requests of the longest run of the search."""
    router: str
    """How requests are assigned to replicas."""
    model_dtype: str = ""
    model_context: int = 0
    """Format of the model's own weights, and the longest sequence it takes; a plan may have others."""
    best: PlanScore
    pareto: tuple[PlanScore, ...]
    binding: str
    runner_up: Mapping[str, Any]
    """The best other plan that meets the goals, and what it costs and buys."""
    next_cheaper: Mapping[str, Any] = field(default_factory=dict)
    """By cost: the cheaper plan that comes nearest to the goals, and what it misses."""
    near_ties: tuple[Mapping[str, Any], ...] = ()
    """By cost: plans of other shapes that cost hardly more, and what that buys."""
    rejected: Mapping[str, int]
    goals: tuple[Goal, ...]
    command: str
    """What starts one replica; empty where the engine does not run on the chip."""
    left_to_you: tuple[str, ...] = ()
    """What has to be made before the command can run, or is not in it."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Chips of the fleet that no plan is made for, and why."""


@dataclass(frozen=True, kw_only=True)
class TrainingReport(Result):
    """One training step. `step` holds its timeline and figures."""

    SCHEMA = "simulate.train"
    HIDDEN = frozenset({"step", "plan"})
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    step_time_s: Estimate
    mfu: float
    hfu: float
    tokens_per_s_per_gpu: float
    peak_memory_bytes: Estimate
    usable_memory_bytes: float
    fits: bool
    cause: Shortage | None = None
    """What is short on the fullest rank, or on a host, where it does not fit."""
    ranks: tuple[Mapping[str, Any], ...]
    """Every rank: its place in the pipeline, and its memory at the fullest moment."""
    host_bytes: float = 0.0
    """What techniques keep in the memory of one host."""
    memory_parts: tuple[Mapping[str, float], ...]
    """By pipeline rank: weights, gradients, optimizer, activations, working."""
    bubble_fraction: float
    exposed_communication_s: float
    step_parts: Mapping[str, float]
    """Seconds from the start to the last backward, then of what follows it."""
    micro_batches: int
    energy_j: float
    co2_g: float | None = None
    """Of that energy, where a cluster's file names the grid, which `grid` repeats."""
    grid: Mapping[str, str | float] = field(default_factory=dict)
    cost_usd: float
    run: Mapping[str, float]
    """Of the whole run, where its tokens are given: steps, days, dollars, kilowatt-hours."""
    targets: tuple[str, ...]
    """What `gnomon export` can write the plan for, its own engine's first."""
    assumed: tuple[str, ...] = ()
    """What its techniques take the machine to have that nobody has told."""
    inputs: Mapping[str, Any]
    plan: Plan
    step: Any = None

    def to_dict(self) -> dict[str, Any]:
        return Result.to_dict(self) | {"plan": plan_to_dict(self.plan)}


@dataclass(frozen=True, kw_only=True)
class TrainingPlanReport(Result):
    SCHEMA = "plan.train"
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    plans_considered: int
    plans_fit: int
    plans_timed: int
    best: TrainingReport
    label: str
    """The best plan in a line."""
    bound_s: float
    """No plan that was not timed can be quicker than this."""
    runner_up: Mapping[str, Any]
    rejected: Mapping[str, int]
    shortage_bytes: tuple[float, float]
    """What plans that do not fit lack on their fullest rank, least and most."""
    command: str
    """What starts the best plan on each node, beside where they meet; empty where its engine cannot say it."""
    inputs: Mapping[str, Any]


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


@dataclass(frozen=True, kw_only=True)
class Verified(Result):
    """Measured beside predicted, part by part."""

    SCHEMA = "verify"
    HIDDEN = frozenset({"plan"})
    title: str
    parts: tuple[Mapping[str, Any], ...]
    conditions: Mapping[str, Any]
    measured: Mapping[str, Any]
    plan: Plan | None = None
    """What ran."""

    def to_dict(self) -> dict[str, Any]:
        return Result.to_dict(self) | ({"plan": plan_to_dict(self.plan)} if self.plan else {})
