"""The search of a serving task: its plans, and what answers for them."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.base import ServingCase
from gnomon.errors import InputError, named_as
from gnomon.graph.dtypes import width
from gnomon.planning.serving.disaggregated import PoolsEvaluator, disaggregated_space
from gnomon.planning.serving.evaluator import MOST_REQUESTS
from gnomon.planning.serving.mixed import MixedSearch
from gnomon.planning.serving.replicas import Replicas
from gnomon.planning.serving.space import plan_space
from gnomon.planning.serving.task import PlanTask
from gnomon.search import Level, PlanFamily
from gnomon.spec import Model, ServingLoad, Strategy
from gnomon.spec.plan import AGGREGATED, DISAGGREGATED
from gnomon.techniques import SERVING, WHERE, applied

SEARCH_REQUESTS = 2_000
TRACE_REQUESTS = 4_000
"""Requests of a sample; those of a trace differ more among each other."""
FULL_REQUESTS = 5_000
"""Requests of a full load, which is also the first of ever longer runs that a winner is judged by; a full trace up to
`MOST_TRACE` of them."""
MOST_TRACE = 20_000
LEAST_REQUESTS = 400
"""Fewer requests do not reach a steady state."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The families of a task whose replicas all do the same, and their replicas."""

    task: PlanTask
    formats: tuple[str, ...]
    plain: list[PlanFamily]
    replicas: Replicas

    @classmethod
    def of(cls, task: PlanTask) -> Prepared:
        tried = formats_of(task)
        plain = plan_space(task.setup, task.fleet, tried)
        return cls(task, tried, plain, Replicas(task.setup, plain, task.arrivals.longest))

    def alike(self) -> PoolsEvaluator:
        """Answers for plans whose replicas of one role are equal."""
        return alike_evaluator(self.task, self.replicas)

    def space(self) -> list[PlanFamily]:
        """The families of the kinds of plans that are asked for."""
        task, plain = self.task, self.plain
        if task.pools == AGGREGATED:
            return plain
        apart = disaggregated_space(task.setup, task.fleet, plain)
        if not apart and task.pools == DISAGGREGATED:
            hint = "Give more chips, or --pools aggregated."
            raise InputError("prefill and decode replicas need two chips at least", where="--fleet", hint=hint)
        return apart if task.pools == DISAGGREGATED else [*plain, *apart]

    def mixed(self) -> MixedSearch:
        """Of mixtures of chips; what each kind holds is found on twice a sample, the mixture is judged on the full
        load."""
        counts = _counts(self.task.arrivals.load, self.task.requests)
        counts[Level.FULL] = min(counts[Level.FULL], 2 * counts[Level.SEARCH])
        evaluator = PoolsEvaluator(self.replicas, self.task.arrivals, self.task.goals, counts)
        return MixedSearch(self.task, self.plain, evaluator)


def alike_evaluator(task: PlanTask, replicas: Replicas) -> PoolsEvaluator:
    """Answers for plans of a task by some replicas."""
    counts = _counts(task.arrivals.load, task.requests)
    return PoolsEvaluator(replicas, task.arrivals, task.goals, counts, how=task.kv_transfer)


def formats_of(task: PlanTask) -> tuple[str, ...]:
    """The number formats that plans are tried in."""
    fixed = _fixed_format(task)
    return (fixed,) if fixed else task.dtypes or _formats(task.model)


def _fixed_format(task: PlanTask) -> str | None:
    """The number format that techniques choose, where they do. Raises where one applies to no plan."""
    with named_as(WHERE, "--with"):
        chosen = applied(SERVING, task.techniques)
        named = task.dtypes or ()
        single = named[0] if len(named) == 1 else None
        each = [
            ServingCase(model=task.model, pool=pool, strategy=Strategy(), dtype=single, kv_dtype=task.kv_dtype)
            for pool in task.fleet.pools
        ]
        for draft in each:
            chosen.check_simulated(draft)
        found = {chosen.rewrite(draft).dtype for draft in each} - {single}
    if found and task.dtypes is not None:
        message = f"the techniques set the weight format to {', '.join(sorted(map(str, found)))}"
        raise InputError(message, where="--dtype", hint="Leave it out.")
    return found.pop() if len(found) == 1 else None


def _counts(load: ServingLoad, requests: int | None) -> dict[Level, int]:
    full = MOST_TRACE if load.trace else FULL_REQUESTS
    if requests is not None:
        full = max(LEAST_REQUESTS, min(requests, MOST_REQUESTS))
    sample = min(TRACE_REQUESTS if load.trace else SEARCH_REQUESTS, full)
    return {Level.SEARCH: sample, Level.VERDICT: sample, Level.TO_THE_END: full, Level.FULL: full, Level.SURE: full}


def _formats(model: Model) -> tuple[str, ...]:
    """A narrow checkpoint runs as it is stored; of a wide one eight bits are tried too."""
    return (model.dtype,) if width(model.dtype) < width("bf16") else ("bf16", "fp8")
