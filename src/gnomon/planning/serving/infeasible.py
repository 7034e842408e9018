"""No plan meets the goals: the nearest plan, what it misses, and simulated changes that do meet them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnomon import catalog
from gnomon.errors import DoesNotFitError, NoPlanError
from gnomon.planning.deploy import ReplicaSpec
from gnomon.planning.memory.decoder import fit_replica
from gnomon.planning.proposals import named
from gnomon.planning.serving.disaggregated import pools_of
from gnomon.planning.serving.evaluator import ServingEvaluator
from gnomon.planning.serving.report import PlanBook
from gnomon.planning.serving.slots import slots_of_plan, slots_words
from gnomon.planning.serving.task import PlanTask
from gnomon.planning.serving.why import why_bounded, why_missed
from gnomon.search import Candidate, SearchResult
from gnomon.search.advice import Advice, advice
from gnomon.search.nearest import nearest_plan
from gnomon.spec import Pool
from gnomon.spec.plan_dict import plan_to_dict


def no_plan(question: PlanTask, found: SearchResult, evaluator: ServingEvaluator) -> DoesNotFitError | NoPlanError:
    """The error of a search that found nothing."""
    if not found.bounds:
        return _does_not_fit(question, evaluator.longest)
    score = nearest_plan(found, evaluator, question.job)
    plan, bounds = score.plan, found.bounds[score.plan.family]
    job = replace(question.job, rate_per_s=score.rate_per_s)
    why = why_bounded(plan, bounds, job) or why_missed(score, job)
    why += slots_words(slots_of_plan(score, evaluator, question.setup.adapters))
    changes = _flags(question, plan, advice(plan, bounds, job, evaluator, evaluator.with_goals))
    tried = " or ".join(f"{flag} {value}" for flag, value in changes.items())
    where = "no plan on" if len(question.fleet.pools) == 1 else "no pool of"
    scored = PlanBook(question, evaluator).score(score)
    return NoPlanError(
        f"{where} {question.chips} meets the goals; the nearest, {scored.label}, {why}",
        hint=f"Simulated, and meets them: {tried}." if tried else "No single change of fleet, rate or goals does.",
        nearest={
            "label": scored.label,
            "plan": plan_to_dict(scored.plan),
            "why": why,
            "usd_h": scored.usd_h,
            "values_s": dict(score.values_s),
            "settled": score.settled and not score.grows,
            "changes": changes,
        },
    )


def _does_not_fit(question: PlanTask, longest: int) -> DoesNotFitError:
    """No replica fits on the chips of one node, over which a plan's replicas do not go."""
    largest = max(question.fleet.pools, key=lambda pool: min(pool.per_node, pool.count) * pool.chip.memory_bytes)
    most = min(largest.per_node, largest.count)
    inside = fit_replica(_replica(question, largest.resized(most)), longest)
    name, node = catalog.model_title(question.model.name), f"{largest.chip.short}:{most}"
    where = question.chips if most == largest.count else f"{node}, one node of {question.chips}"
    command = f"`gnomon fit {question.reference} --on {largest.chip.reference}:{most} --context {longest}`"
    hint = f"{command} shows what is short."
    if most < largest.count and fit_replica(_replica(question, largest), longest).fits:
        hint = f"Plans keep each replica within a node; `gnomon simulate serve` also takes one across nodes. {hint}"
    changes = [{"what": change.what, "flags": dict(change.flags)} for change in inside.changes]
    return DoesNotFitError(
        f"no replica of {name} with its longest request fits on {where}",
        hint=hint,
        nearest={"on": f"{largest.chip.reference}:{most}", "fits_with": changes},
    )


def _replica(question: PlanTask, pool: Pool) -> ReplicaSpec:
    """A replica that spans these chips."""
    return ReplicaSpec(
        model=question.model, reference=question.reference, on=pool.words,
        binding=replace(question.bindings[pool.chip.name], pool=pool), kv_dtype=question.kv_dtype,
        settings=question.engine.settings, priced=False,
    )  # fmt: skip


def _flags(question: PlanTask, plan: Candidate, found: Advice) -> dict[str, Any]:
    """The changes as flags of the command."""
    flags: dict[str, Any] = {}
    if found.replicas and {each.family.chip for _, each in pools_of(plan)} == {plan.family.chip}:
        pool = next(pool for pool in question.fleet.pools if pool.chip.name == plan.family.chip)
        fleet = named(pool, replace(plan, replicas=found.replicas).chips)
        flags |= {"--fleet": fleet} if fleet else {}
    if found.rate_per_s and question.job.rate_per_s:
        flags["--rate"] = f"{found.rate_per_s:g}"
    if found.goals:
        flags["--slo"] = ",".join(f"{goal.name}={goal.limit_s * 1e3:g}ms" for goal in found.goals)
    return flags
