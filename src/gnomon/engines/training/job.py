"""A training plan with what it names looked up, refused where no engine could cut it up as it says."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from gnomon.errors import InputError
from gnomon.graph.support import check_learnt
from gnomon.load.hf import model as load_model
from gnomon.load.recipe import recipe_of
from gnomon.spec import Model, Plan, Recipe, TrainingLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training plan with what it names looked up."""

    plan: Plan
    load: TrainingLoad
    recipe: Recipe
    model: Model


def job_of(plan: Plan) -> Job:
    """The plan made ready. Raises InputError where no engine could cut it up as it says."""
    if not isinstance(plan.load, TrainingLoad):
        raise InputError("the plan is not for training", where="load", hint="Give it seq and global_batch.")
    if plan.replicas != 1:
        hint = "Say how many copies learn together as strategy.dp."
        raise InputError(f"{plan.replicas} is not 1, as training needs it", where="replicas", hint=hint)
    job = Job(
        plan=plan,
        load=plan.load,
        recipe=recipe_of(plan.engine.settings, "engine.settings"),
        model=load_model(plan.model),
    )
    check_learnt(job.model)
    _check_positions(job)
    _check_schedule(job)
    _check_cuts(job)
    return job


def check_layers(model: Model) -> None:
    """Raise where layers differ: one of them is priced for all."""
    if len({(block.mixer, block.ffn) for block in model.blocks}) > 1:
        raise InputError(f"{model.name} has layers of several kinds, whose training is not priced yet", where="model")


def _check_cuts(job: Job) -> None:
    strategy, mixer = job.plan.strategy, job.model.blocks[0].attention
    cut(job.model.layers, strategy.pp * strategy.vp, "layers", "strategy, pp x vp")
    inner = sorted({block.feed_forward.inner for block in job.model.blocks})
    together = gcd(mixer.heads, mixer.kv_heads, *inner)
    cut(mixer.heads, strategy.tp, "attention heads", "strategy.tp", together)
    cut(mixer.kv_heads, strategy.tp, "key-value heads", "strategy.tp", together)
    for columns in inner:
        cut(columns, strategy.tp, "columns of the feed-forward part", "strategy.tp", together)
    each, ranks = strategy.dp * job.recipe.micro_batch, f"{strategy.dp} ranks x {job.recipe.micro_batch} sequences"
    if job.recipe.schedule == "interleaved" and strategy.pp > 1:
        each, ranks = each * strategy.pp, f"{ranks} x {strategy.pp} interleaved stages"
    _multiple(job.load.global_batch, each, ranks, "load.global_batch")
    # Each context-parallel rank takes two pieces, one early and one late, so that causal work is even.
    pieces = 2 * strategy.cp if strategy.cp > 1 else 1
    _multiple(job.load.seq, pieces * (strategy.tp if job.recipe.sequence_parallel else 1), "pieces", "load.seq")


def _check_positions(job: Job) -> None:
    learned = job.model.learned_positions
    if learned and job.load.seq > learned:
        message = f"{job.load.seq} is more than the {learned} positions {job.model.name} has learnt"
        raise InputError(message, where="load.seq", hint=f"Use at most {learned}.")


def _multiple(value: int, of: int, what: str, where: str) -> None:
    """The load can be changed: the nearest loads that can be shared out are named."""
    if value % of:
        below = value // of * of
        hint = f"Use {f'{below} or ' if below else ''}{below + of}."
        raise InputError(f"{value} is no multiple of {of} ({what})", where=where, hint=hint)


def cut(whole: int, parts: int, what: str, where: str, together: int = 0) -> None:
    """The model cannot be changed: the nearest degrees that can cut it, and all that is cut with it, are named."""
    if whole % parts == 0:
        return
    common = together or whole
    near = [next(n for n in range(min(parts, common), 0, -1) if common % n == 0)]
    near += [n for n in range(parts, min(2 * parts, common) + 1) if common % n == 0][:1]
    hint = f"Use {' or '.join(map(str, near))}."
    raise InputError(f"{whole} {what} cannot be cut into {parts} equal parts", where=where, hint=hint)


def _check_schedule(job: Job) -> None:
    strategy, schedule = job.plan.strategy, job.recipe.schedule
    if strategy.pp == strategy.vp == 1:
        return
    if (schedule == "interleaved") != (strategy.vp > 1):
        hint = "The interleaved schedule has vp of 2 or more, every other schedule has vp 1."
        raise InputError(f"{strategy.vp} does not go with the schedule {schedule}", where="strategy.vp", hint=hint)
    if strategy.pp == 1:
        raise InputError("1 pipeline rank has nobody to interleave with", where="strategy.pp", hint="Use 2 or more.")
