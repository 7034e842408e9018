"""A training step from the words of a command."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnomon.catalog import model_title
from gnomon.engines import training_engine
from gnomon.engines.training.job import TrainingJob, job_of
from gnomon.errors import GnomonError, InputError
from gnomon.export import TRAINING, target
from gnomon.export.base import not_trained_on
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.recipe import recipe_of, recipe_to_settings
from gnomon.planning.proposals import mend
from gnomon.planning.shortage import training_shortage
from gnomon.planning.steps.network_words import refuse_auto
from gnomon.planning.training.checks import check_dtype, check_tasks, training_dtype
from gnomon.planning.training.settled import SET_BY_TECHNIQUES, settled
from gnomon.planning.training.step import TrainingStep
from gnomon.planning.unmodelled import idle_beyond, idle_in_training, in_files
from gnomon.spec import EngineChoice, Estimate, NotModelled, Plan, Pool, Recipe, Strategy, TrainingLoad
from gnomon.spec.answers import Resolved, Shortage, TrainingReport
from gnomon.spec.cluster import KWH_J
from gnomon.spec.questions.base import whole
from gnomon.techniques import Applied, applied, asked
from gnomon.techniques.hosts import ROOM
from gnomon.units import parse_count

HOURS, DAYS = 3600.0, 86400.0
STARTS = {"megatron": "megatron", "torchrun": "torch"}
"""The training engine that a target starts."""
MEMORY_SOURCE = "tensor by tensor"
MOST_CHIPS = 1_000_000
MOST_BATCH = 1_000_000
MOST_TOKENS = 2**31
"""Of one sequence."""
_FIELD = re.compile(r"\b(?:strategy\.|load\.|engine\.settings(?:\.|, field ))(\w+)")
_BARE = {"strategy, pp x vp": "--pp x --vp", "model": "MODEL"} | {
    name: f"--{name}" for name in ("schedule", "recompute", "optimizer", "zero", "dtype")
}
"""Places that errors name by themselves, as flags."""


def simulate_training(
    model: str | Path,
    *,
    on: str,
    seq: int,
    global_batch: int,
    micro_batch: int = 1,
    tp: int = 1,
    pp: int | None = None,
    vp: int | None = None,
    cp: int | None = None,
    ep: int = 1,
    dp: int | None = None,
    zero: int = 0,
    schedule: str | None = None,
    recompute: str | None = None,
    optimizer: str = "adamw",
    sequence_parallel: bool = True,
    cp_comm: str | None = None,
    expert_tp: int = 0,
    dtype: str | None = None,
    engine: str = "megatron",
    tokens: float | None = None,
    techniques: Sequence[str] = (),
) -> TrainingReport:
    """Seconds, memory of every rank, energy and dollars of one step of `global_batch` sequences of `seq` tokens.

    Without a data-parallel degree the chips that the other degrees leave are used for it. With `tokens`, the whole
    run is answered too. `techniques` are named as in a plan: `offload-optimizer:stride=2`. What is None is what they
    set, or else a degree of 1, 1f1b (interleaved with `vp`), no recomputing, and keys that go round in a ring.
    """
    settings = {
        "micro_batch": micro_batch, "zero": zero, "schedule": schedule, "recompute": recompute, "optimizer": optimizer,
        "sequence_parallel": sequence_parallel, "cp_comm": cp_comm, "expert_tp": expert_tp,
    }  # fmt: skip
    words: dict[str, Any] = settings | {
        "on": on, "seq": seq, "global_batch": global_batch, "tokens": tokens, "tp": tp, "pp": pp, "vp": vp, "cp": cp,
        "ep": ep, "dp": dp, "dtype": dtype, "engine": engine, "techniques": techniques,
    }  # fmt: skip
    pool = parse_pool(on)
    try:
        found = report(*_plan_of(model, words))
    except GnomonError as error:
        error.where, error.hint = as_flags(error.where), as_flags(error.hint)
        mend(error, pool, words, lambda other: _checked(*_plan_of(model, words | dict(other))))
        raise
    idle = idle_in_training(settings, found.plan.strategy, found.step.job.model)
    return replace(found, not_modelled=(*idle, *found.not_modelled))


def _plan_of(model: str | Path, words: Mapping[str, Any]) -> tuple[Plan, Pool]:
    """The plan that the words of a command ask for, and its chips."""
    ideas = asked(words["techniques"])
    refuse_auto(ideas)
    pool = parse_pool(words["on"])
    given = {name: words[name] for name in SET_BY_TECHNIQUES if words[name] is not None}
    asked_for = {"pp": 1, "vp": 1, "cp": 1} | given | {"tp": words["tp"], "ep": words["ep"]}
    degrees: dict[str, Any] = {name: _positive(asked_for[name], f"--{name}") for name in ("tp", "pp", "vp", "cp", "ep")}
    usual = {"schedule": "interleaved" if degrees["vp"] > 1 else "1f1b", "recompute": "none", "cp_comm": "p2p"}
    settings = {name: given.get(name, usual[name]) for name in usual} | {
        "optimizer": words["optimizer"],
        "micro_batch": _positive(words["micro_batch"], "--micro-batch"),
        "zero": whole(words["zero"], "--zero"),
        "sequence_parallel": _flag(words["sequence_parallel"]) and degrees["tp"] > 1,
        "expert_tp": whole(words["expert_tp"], "--expert-tp"),
    }
    load = load_of(words["seq"], words["global_batch"], words["tokens"])
    recipe, chosen = recipe_of(settings), (words["dtype"], words["engine"])
    # What the network refuses is told before how chips and sequences are shared out.
    even = replace(load, global_batch=recipe.micro_batch * degrees["pp"])
    job_of(training_plan(model, pool, Strategy(**degrees), recipe, even, *chosen))
    strategy = replace(_strategy(pool, degrees, words["dp"]), techniques=ideas)
    plan = training_plan(model, pool, strategy, recipe, load, *chosen)
    if ideas:
        plan = settled(plan, pool, training_engine(plan.engine.label), applied(ideas), given)
    return plan, pool


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"'{value}' is neither true nor false", where="sequence_parallel")
    return value


def load_of(seq: int, global_batch: int, tokens: float | None) -> TrainingLoad:
    """The load of a command's words."""
    whole_run = None if tokens is None else parse_count(tokens, "--tokens")
    if whole_run == 0:
        raise InputError(f"'{tokens}' is not above zero", where="--tokens")
    return TrainingLoad(
        seq=_positive(seq, "--seq", MOST_TOKENS),
        global_batch=_positive(global_batch, "--global-batch", MOST_BATCH),
        tokens=whole_run,
    )


def training_plan(
    model: str | Path,
    pool: Pool,
    strategy: Strategy,
    recipe: Recipe,
    load: TrainingLoad,
    dtype: str | None,
    engine: str,
) -> Plan:
    chosen = training_engine(engine)
    settings = recipe_to_settings(recipe)
    return Plan(
        model=str(model),
        chip=pool.chip.reference,
        per_node=pool.unusual_node_size,
        replicas=1,
        strategy=strategy,
        dtype=dtype or training_dtype(load_model(model), pool.chip),
        engine=EngineChoice(name=chosen.name, version=chosen.version, settings=settings),
        load=load,
    )


def step_of(plan: Plan, pool: Pool) -> TrainingStep:
    """A plan's step, once the plan is known to be possible."""
    return TrainingStep(training_engine(plan.engine.label), *_checked(plan, pool))


def _checked(plan: Plan, pool: Pool) -> tuple[TrainingJob, Pool, Applied]:
    """What a step is made of. Raises where the plan is not possible."""
    chosen, ideas = training_engine(plan.engine.label), applied(plan.strategy.techniques)
    if ideas:
        plan = settled(plan, pool, chosen, ideas)
    job = job_of(plan)
    check_dtype(pool, plan.dtype)
    _check_size(job)
    chosen.check(job.model, plan.strategy, job.recipe, job.load, plan.dtype)
    return job, pool, ideas


def check_chips(count: int, where: str) -> None:
    if count > MOST_CHIPS:
        raise InputError(f"{count:,} chips are more than {MOST_CHIPS:,}", where=where)


def _check_size(job: TrainingJob) -> None:
    """Refuse what would take minutes to time, or gigabytes to answer."""
    strategy = job.plan.strategy
    check_chips(strategy.ranks, "--on")
    micros = job.load.global_batch // (strategy.dp * job.recipe.micro_batch)
    check_tasks(job.load.global_batch, micros, strategy.pp * strategy.vp)


def report(plan: Plan, pool: Pool) -> TrainingReport:
    return report_step(step_of(plan, pool))


def report_step(step: TrainingStep) -> TrainingReport:
    """A step as an answer."""
    plan, load, chip, grid = step.job.plan, step.job.load, step.pool.chip, step.pool.grid
    seconds, ranks = step.step_s, plan.strategy.ranks
    peak = ranks * chip.rate(plan.dtype)
    flops = step.flops
    cost = ranks * chip.price_usd_h * seconds.value / HOURS
    each = plan.strategy.tp * plan.strategy.cp * plan.strategy.dp
    return TrainingReport(
        title=_title(step),
        not_modelled=(
            *_not_modelled(step),
            *in_files(step.pool, step.job.model),
            *idle_beyond(step.pool, step.job.plan.strategy.ranks),
        ),
        step_time_s=seconds,
        mfu=flops["model"] / seconds.value / peak,
        hfu=(flops["model"] + flops["again"]) / seconds.value / peak,
        tokens_per_s_per_gpu=load.step_tokens / seconds.value / ranks,
        peak_memory_bytes=Estimate.exact(max(step.peaks), MEMORY_SOURCE),
        usable_memory_bytes=step.usable_bytes,
        fits=step.fits,
        cause=None if step.fits else _cause(step),
        ranks=tuple(
            {"rank": rank, "pipeline_rank": rank // each, "peak_memory_bytes": step.peaks[rank // each]}
            for rank in range(ranks)
        ),
        host_bytes=step.host_bytes,
        memory_parts=tuple(_parts(step, rank) for rank in range(plan.strategy.pp)),
        bubble_fraction=step.timeline.bubble_fraction,
        exposed_communication_s=max(step.timeline.step_s - step.quiet_s, 0.0),
        step_parts=_step_parts(step),
        micro_batches=int(step.figures.micros[0]),
        energy_j=step.energy_j,
        co2_g=grid.co2_g(step.energy_j) if grid else None,
        grid=grid.told if grid else {},
        cost_usd=cost,
        run=_run(step, cost),
        targets=_targets(step),
        assumed=step.applied.assumed(step.figures, step.case),
        inputs=_inputs(step),
        resolved=Resolved.of(step.job.model, step.pool),
        plan=plan,
        step=step,
    )


def _strategy(pool: Pool, degrees: dict[str, Any], dp: int | None) -> Strategy:
    taken = degrees["tp"] * degrees["pp"] * degrees["cp"]
    left, rest = divmod(pool.count, taken)
    if dp is None:
        if rest:
            near = [n for n in (left * taken, (left + 1) * taken) if n]
            hint = f"Use {' or '.join(f'{pool.chip.reference}:{n}' for n in near)}."
            raise InputError(f"{pool.count} chips are no multiple of tp x pp x cp = {taken}", where="--on", hint=hint)
        return Strategy(**degrees, dp=left)
    dp = _positive(dp, "--dp")
    if taken * dp != pool.count:
        hint = f"Use --on {pool.chip.reference}:{taken * dp}, or leave --dp out."
        raise InputError(f"tp x pp x cp x dp = {taken * dp} chips are asked for and {pool.count} given", where="--dp",
                         hint=hint)  # fmt: skip
    return Strategy(**degrees, dp=dp)


def _positive(value: Any, flag: str, most: int = MOST_CHIPS) -> int:
    number = whole(value, flag)
    if number < 1:
        raise InputError(f"{number} is below 1", where=flag)
    if number > most:
        raise InputError(f"{number} is more than {most:,}", where=flag)
    return number


def as_flags(text: str) -> str:
    """A plan's fields as the flags that gave them."""
    text = text.replace("strategy.techniques", "--with")
    return _BARE.get(text) or _FIELD.sub(lambda found: "--" + found[1].replace("_", "-"), text)


def _title(step: TrainingStep) -> str:
    plan, load = step.job.plan, step.job.load
    name = model_title(plan.model) if "/" not in plan.model else step.job.model.name
    chips = f"{plan.strategy.ranks:,} x {step.pool.chip.name}"
    count = "1 sequence" if load.global_batch == 1 else f"{load.global_batch:,} sequences"
    batch = f"a step of {count} of {load.seq:,} tokens"
    engine = f"{step.engine.title} {step.engine.version}"
    runs = f"as if {engine} ran there" if _not_modelled(step) else engine
    return f"{name}, {plan.dtype}, {chips}, {runs}: {batch}"


def _not_modelled(step: TrainingStep) -> tuple[NotModelled, ...]:
    """A chip that the engine does not run on."""
    why = not_trained_on(step.pool.chip, step.engine.title)
    there = NotModelled(option=step.pool.chip.name, why=f"{why}; it is priced as if it did")
    return (there,) if why else ()


def _parts(step: TrainingStep, rank: int) -> dict[str, float]:
    memory = step.memory(rank)
    names = ("weights", "gradients", "optimizer", "activations", "buffers", "working")
    return {name: float(getattr(memory, name)[0]) for name in names}


def _cause(step: TrainingStep) -> Shortage:
    """What is short on the fullest rank; where nothing is, the hosts are full."""
    fullest = step.peaks.index(max(step.peaks))
    micro = step.job.recipe.micro_batch
    found = training_shortage(_parts(step, fullest), step.usable_bytes, micro, step.job.load.seq)
    host = step.pool.machine
    room = host.memory_bytes * ROOM if host else 0.0
    return found or Shortage(part="host memory", needs_bytes=step.host_bytes, left_bytes=room)


def _step_parts(step: TrainingStep) -> dict[str, float]:
    line, found = step.timeline, step.figures
    return {
        "pipeline_s": line.pipeline_s,
        "gradient_reduction_s": line.optimizer_start_s - line.pipeline_s,
        "optimizer_s": float(found.optimizer_s[0]),
        "weight_gather_s": float(found.gather_s[0]),
    } | ({"waits_s": step.waits_s} if step.waits_s else {})


def _run(step: TrainingStep, cost_usd: float) -> dict[str, float]:
    steps = step.job.load.steps
    if steps is None:
        return {}
    return {
        "steps": steps,
        "days": steps * step.step_s.value / DAYS,
        "cost_usd": steps * cost_usd,
        "energy_kwh": steps * step.energy_j / KWH_J,
    } | ({"co2_kg": steps * step.pool.grid.co2_g(step.energy_j) / 1e3} if step.pool.grid else {})


def own_target(plan: Plan) -> str:
    """What a plan is exported to for its own engine."""
    return next(name for name, engine in STARTS.items() if engine == plan.engine.name)


def under(plan: Plan, to: str, pool: Pool) -> TrainingStep:
    """A plan's step under the engine that a target starts, in the version that is written for."""
    return step_of(replace(plan, engine=EngineChoice(name=STARTS[to], settings=plan.engine.settings)), pool)


def _targets(step: TrainingStep) -> tuple[str, ...]:
    """What the plan can be exported to as it is and fits under, its own engine's target first."""
    plan, found = step.job.plan, []
    for name in sorted(TRAINING, key=lambda name: name != own_target(plan)) if step.fits else ():
        with suppress(GnomonError):
            target(name).render(plan)
            target(name).check(plan)
            if under(plan, name, step.pool).fits:
                found.append(name)
    return tuple(found)


def _inputs(step: TrainingStep) -> dict[str, Any]:
    plan, load = step.job.plan, step.job.load
    degrees = {name: getattr(plan.strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    words: dict[str, Any] = {"model": plan.model, "on": step.pool.words, "dtype": plan.dtype}
    words |= {"seq": load.seq, "global_batch": load.global_batch, "tokens": load.tokens, "engine": plan.engine.label}
    techniques = {"techniques": list(plan.strategy.techniques)} if plan.strategy.techniques else {}
    return words | degrees | dict(plan.engine.settings) | techniques
