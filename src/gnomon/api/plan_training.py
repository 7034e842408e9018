"""The fastest way to train a model on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.errors import placed
from gnomon.execution.targets import command_of, with_targets
from gnomon.load import config_of
from gnomon.load.reliability import fault_tolerance, on_grid
from gnomon.load.training import bind_training, with_lengths
from gnomon.planning.run import with_failures
from gnomon.planning.training.best import plan_asked, plan_mixed
from gnomon.planning.training.objectives import Site
from gnomon.planning.training.packings import idle_lengths
from gnomon.spec import Model, Pool
from gnomon.spec.answers import TrainingPlanReport
from gnomon.spec.questions.objectives import LARGEST, PlanTrainingQuestion


def plan_training(
    model: str | Path | Model,
    *,
    cluster: str | Pool | Sequence[str | Pool],
    seq: int,
    global_batch: int,
    tokens: float | None = None,
    images: int | None = None, image: str | None = None, source: int | None = None, freeze: str | None = None,
    mtp_layers: int = 0,
    optimizer: str = "adamw",
    dtype: str | None = None, fp8_param_gather: bool = False, bf16_layers: str | None = None,
    engine: str = "megatron",
    lengths: int | str | None = None, packing: str | None = None, sampling: str | None = None,
    document_masking: bool | None = None, seed: int = 0,
    techniques: Sequence[str] = (),
    power_limit_w: float | None = None,
    failures: str | None = None,
    checkpoint_to: str | None = None,
    checkpoint_every: str | int | None = None,
    checkpoint_mode: str | None = None,
    spares: str | int | None = None,
    detection_time_s: float | None = None,
    restart_time_s: float | None = None,
    repair_time_s: float | None = None,
    grid: str | None = None,
    objective: str | None = None,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    fewest_gpus: bool = False,
    longest_context: bool = False,
    progress: Callable[[int], None] | None = None,
) -> TrainingPlanReport:  # fmt: skip
    """The plan with the shortest step, over all degrees, micro-batches, schedules and ways to save memory.

    `techniques` go into every plan; with `auto` the search also tries each technique it knows, and none. Plans
    may leave chips idle where the degrees do not divide them. Exact: every plan that was not timed has a lower bound
    at or above the best time. `power_limit_w` is what each chip may draw, below its own limit. Of equally fast plans
    the one that leaves more memory free wins. `failures`, `checkpoint_to`, …, `grid` are as in `simulate_training`: the
    run of the best plan then has its failures in it. So are `lengths`, `packing`, `sampling`, `document_masking` and
    `seed`.
    """
    question = PlanTrainingQuestion(
        model=model, cluster=cluster, seq=seq, global_batch=global_batch, tokens=tokens, images=images,
        image=image, source=source, freeze=freeze, mtp_layers=mtp_layers, optimizer=optimizer, dtype=dtype,
        fp8_param_gather=fp8_param_gather, bf16_layers=bf16_layers, engine=engine, lengths=lengths,
        packing=packing, sampling=sampling, document_masking=document_masking,
        seed=seed, techniques=techniques, power_limit_w=power_limit_w, failures=failures,
        checkpoint_to=checkpoint_to, checkpoint_every=checkpoint_every, checkpoint_mode=checkpoint_mode, spares=spares,
        detection_time_s=detection_time_s, restart_time_s=restart_time_s, repair_time_s=repair_time_s, grid=grid,
        objective=objective, deadline_s=deadline_s, budget_usd=budget_usd, fewest_gpus=fewest_gpus,
        longest_context=longest_context,
    )  # fmt: skip
    return answer(question, progress)


def answer(question: PlanTrainingQuestion, progress: Callable[[int], None] | None = None) -> TrainingPlanReport:
    """The best plan that a question asks for, with the command that starts it."""
    clusters = question.kinds or question.clusters
    sites = [_site(question, model, cluster) for model in question.models for cluster in clusters]
    with placed(question.places()):
        found = (plan_mixed if question.kinds else plan_asked)(question, sites, progress)
    if found.mixture:
        return found
    asked = fault_tolerance(question, found.best.step.pool)
    best = with_failures(found.best, asked, question.run_given)
    idle = idle_lengths(question.lengths_given, best.step.job.load)
    found = replace(found, best=best, inputs={**found.inputs, **question.run_given}, not_modelled=idle)
    if best.step.job.name not in map(str, question.models) or isinstance(question.model, Model):
        return found if question.goal == LARGEST else replace(found, **_started(found, {}))
    return replace(found, **_started(found, config_of(best.step.job.name)))


def _started(found: TrainingPlanReport, config: Mapping[str, Any]) -> dict[str, Any]:
    """What the best plan can be exported to, and the command that starts it."""
    best = with_targets(found.best)
    return {"best": best, "command": command_of(best, config)}


def _site(question: PlanTrainingQuestion, model: str | Path | Model, cluster: str | Pool) -> Site:
    """One of the models on one of the clusters to choose from, their names looked up once."""
    limit = question.power_limit_w
    with placed(question.places()):
        bound = bind_training(model, cluster, question.engine, "--cluster", limit, question.load)
    bound = with_lengths(on_grid(replace(bound, precision=question.precision_given), question.grid), question)
    return Site(bound=bound, failures=fault_tolerance(question, bound.pool))
