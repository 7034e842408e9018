"""Simulated loads, and deployments that were chosen for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from gnomon.spec.answers.base import UNKNOWN, NotModelled, Resolved, Result
from gnomon.spec.answers.shapes import Degree, Inputs, Signed
from gnomon.spec.estimate import Estimate
from gnomon.spec.plan import Plan
from gnomon.spec.workload import Goal

Band = tuple[float | None, float | None]
Times = Annotated[Mapping[str, float], Mapping[str, float | None]]
"""Seconds by statistic; null in JSON where there are none."""


class PlanFigures(TypedDict, total=False):
    """Figures of a plan as estimates; times by statistic."""

    ttft_s: Mapping[str, Estimate]
    tpot_s: Mapping[str, Estimate]
    e2e_s: Mapping[str, Estimate]
    rate_per_s: Estimate
    """The highest rate that meets the goals, of a plan for that."""
    output_tokens_per_s: Estimate
    usd_per_mtok: Estimate
    wh_per_mtok: Estimate
    power_w: Estimate


class GoalResult(TypedDict, total=False):
    """A goal beside what the run gave."""

    goal: str
    limit_s: float
    value_s: float | None
    met: bool
    """By the central estimate."""
    low_s: float
    high_s: float
    """The 90% interval of the value, where it is known."""
    crosses: bool
    """Whether the limit lies inside it: whether the goal is met is then not sure."""


class RatePoint(TypedDict):
    """A plan at one rate."""

    rate_per_s: float
    ttft_s: Times
    tpot_s: Times
    output_tokens_per_s: float
    meets: bool
    """Whether it meets the goals there."""


class OtherPlan(TypedDict, total=False):
    """A plan beside the best: why it is not, or what it buys."""

    label: str
    usd_h: float
    ttft_s: Times
    tpot_s: Times
    e2e_s: Times
    predicted: PlanFigures
    why: str
    buys: tuple[str, ...]
    only_budgets: bool
    """Whether it differs from the best in the step budgets of its engine alone; reports show `alternative` instead."""


class Sensitivity(TypedDict, total=False):
    """What becomes of the best plan if one input is otherwise and all others stay."""

    input: str
    """`rate`, `input length` (`unshared input` where prompts share beginnings), `output length`, `shared prompts`,
    `draft acceptance`, or `price of CHIP`."""
    now: float
    """Requests per second, mean tokens, shares, or dollars per hour of a chip."""
    holds_to: float | None
    """Up to there, or down to there, the plan still meets the goals, or is still the best by its price; null where it
    does as far as was tried."""
    factor: float
    """The same in times what it is now; where it holds as far as was tried, how far that was."""
    next: OtherPlan
    """The best plan a little beyond; `why` alone where there is none."""


class WeighedTechnique(TypedDict, total=False):
    """A technique or an option of the engine, weighed by itself against a plan with none."""

    name: str
    lossless: bool
    """Whether answers stay the same; else quality changes, by how much is not predicted."""
    used: bool
    """Whether the best plan has it."""
    label: str
    """The best plan with it alone."""
    usd_h: float
    rate_per_s: float
    """Of a plan for the highest rate."""
    why: str
    """What it buys, or why it is not used."""


class PoolUse(TypedDict, total=False):
    """What one pool of a simulated deployment did, drew and cost."""

    role: str
    label: str
    replicas: int
    chips: int
    requests: int
    busy_fraction: float
    peak_kv_share: float
    """Of a replica's KV cache."""
    preemptions: int
    saturation_rps: float
    """Of all its replicas."""
    energy_j: float
    power_w: float
    cost_usd: float
    cost_share: float


@dataclass(frozen=True, kw_only=True)
class ServingReport(Result):
    """A simulated load. `run` holds the arrays of every request."""

    SCHEMA = "simulate.serve"
    HIDDEN = frozenset({"run", "sessions"})
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    requests: Degree
    saturation_rps: float = 0.0
    """Requests per second that the replica sustains at most; 0 where it is not known."""
    overloaded: bool = False
    """Requests arrive faster than they are served: times grow with the length of the load."""
    settled: bool | None = None
    """Whether the run is long enough (six lifetimes of its requests) to show a steady state and not only an empty
    engine that fills; None where all requests arrive at one moment."""
    makespan_s: float
    ttft_s: Times
    tpot_s: Times
    e2e_s: Times
    queue_s: Times
    itl_s: Times = field(default_factory=dict)
    """Gaps between consecutive output tokens, over all tokens of all requests: the ITL of `vllm bench serve`. Its mean
    is that of TPOT, weighted by tokens."""
    goals: tuple[GoalResult, ...] = ()
    """Those that were given, and whether the run meets them."""
    goodput_rps: float | None = None
    """Requests per second that stay within the limits of all goals, where there are goals; and their share."""
    goodput_share: float | None = None
    slots: Mapping[str, float] = field(default_factory=dict)
    """Where requests have more LoRA adapters than there are slots: `adapter_slots`, `adapters`, and `slot_wait_s`, by
    which TTFT would be shorter on average if each had one."""
    output_tokens_per_s: float
    total_tokens_per_s: float
    energy_j: float
    power_w: float = 0.0
    """Of all chips of the replica, on average over the run."""
    clock_slowdown: float = 1.0
    """How many times lower the chips' clock was than the highest under the power limit, on average over the steps."""
    co2_g: float | None = None
    """Of that energy, where a cluster's file names the grid, which `grid` repeats."""
    grid: Mapping[str, str | float] = field(default_factory=dict)
    cost_usd: float
    usd_per_mtok: float
    preemptions: int
    steps: int
    busy_fraction: float
    step_shares: Mapping[str, float] = field(default_factory=dict)
    """Of the time: `prefill` (steps with prompts, which may have decodes too), `decode` (steps without) and `idle`."""
    kv_blocks: int
    peak_kv_blocks: int
    cache_hit_rate: float = 0.0
    """Of all prompt tokens, those that were found in the prefix cache."""
    inputs: Annotated[Mapping[str, Any], Inputs, ("model", "on")]
    resolved: Resolved = UNKNOWN
    bands: Annotated[Mapping[str, Any], Mapping[str, Mapping[str, Band]]] = field(default_factory=dict)
    """Of times and throughput by statistic, the ends of their intervals."""
    pools: tuple[Annotated[Mapping[str, Any], PoolUse], ...] = ()
    """Where there are pools of replicas: each of them. Counts above are sums, or those of the busiest replica."""
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """Where asked for, means over bins of time: `start_s` has when each begins on the clock of the arrivals, `bin_s`
    how long all of them are; null where there is nothing to take a mean of."""
    distributions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Beside series, the same times at 0%, 1% … 100%: `ttft_s`, `tpot_s`, `e2e_s` of requests, `itl_s` of tokens."""
    run: Any = None
    sessions: Any = None
    """Of each request of the run its session, where there are sessions."""


@dataclass(frozen=True, kw_only=True)
class PlanScore(Result):
    """A plan and its figures under the load."""

    plan: Plan
    feasible: bool
    usd_h: float
    usd_per_mtok: float | None
    """For a million output tokens, as is energy."""
    wh_per_mtok: float | None
    power_w: float
    """Of all its chips at the rate it is planned for."""
    output_tokens_per_s: float
    ttft_s: Times
    tpot_s: Times
    e2e_s: Times = field(default_factory=dict)
    max_rate_per_s: float | None
    margin: Mapping[str, Signed | None]
    label: str
    predicted: Annotated[Mapping[str, Any], PlanFigures] = field(default_factory=dict)
    """The same figures as estimates with their intervals; times by statistic. Of plans beside the best
    only the runner-up and the next cheaper one have them."""


@dataclass(frozen=True, kw_only=True)
class PlanReport(Result):
    SCHEMA = "plan.serve"
    HIDDEN = frozenset({"plan_context", "asked"})
    title: str
    not_modelled: tuple[NotModelled, ...] = ()
    plans_considered: int
    plans_fit: int
    plans_simulated: int
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the plans differ in, with every value that was considered; not every value goes with every other."""
    requests_simulated: int
    """Requests that the best plan was judged on."""
    requests_searched: int
    """Requests of the longest run of the search."""
    router: str
    """How requests are assigned to replicas."""
    model_dtype: str = ""
    model_context: int = 0
    """Format of the model's own weights, and the longest sequence it takes; a plan may have others."""
    plan_context: int = 0
    """Tokens of the longest sequence that the best plan's replicas take."""
    best: PlanScore
    pareto: tuple[PlanScore, ...]
    binding: str
    limits: Mapping[str, float] = field(default_factory=dict)
    """How near the best plan is to what else may limit it: `kv_share`, the most of a replica's KV cache that was in
    use, `clock`, the clock under the power limit as a share of the highest, and `preemptions`; with LoRA adapters for
    which there are fewer slots, `adapter_slots`, `adapters`, and `slot_wait_s`, by which TTFT would be shorter on
    average if each had one."""
    runner_up: Annotated[Mapping[str, Any], OtherPlan]
    """The best other plan that meets the goals, and what it costs and buys."""
    alternative: Annotated[Mapping[str, Any], OtherPlan] = field(default_factory=dict)
    """Where the runner-up has the best plan's chip, degrees and number format: the best simulated plan with others that
    meets the goals, and what it costs and buys."""
    next_cheaper: Annotated[Mapping[str, Any], OtherPlan] = field(default_factory=dict)
    """By cost: the cheaper plan that comes nearest to the goals, and what it misses."""
    near_ties: tuple[Annotated[Mapping[str, Any], OtherPlan], ...] = ()
    """By cost: plans of other shapes that cost hardly more, and what that buys."""
    rejected: Mapping[str, int]
    goals: tuple[Goal, ...]
    goal_results: tuple[GoalResult, ...] = ()
    """Each goal beside the best plan's figure and its interval."""
    by_rate: tuple[RatePoint, ...] = ()
    """Where asked for: the best plan at rates up to and a little beyond the highest one that meets the goals."""
    weighed: tuple[WeighedTechnique, ...] = ()
    """With `auto` techniques: each that there is, what it would buy by itself, and why it is not used where it is
    not."""
    sensitivity: tuple[Sensitivity, ...] = ()
    """Where asked for: how far each input may be off before the best plan is another."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """The question, without what has its default."""
    command: str
    """What starts one replica; empty where the engine does not run on the chip."""
    left_to_you: tuple[str, ...] = ()
    """What has to be made before the command can run, or is not in it."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Chips of the fleet that no plan is made for, and why."""
    resolved: Resolved = UNKNOWN
    """Of the best plan's chips."""
