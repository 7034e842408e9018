"""A training step from the words of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnomon.api.deploy import whole
from gnomon.api.results import TrainingReport
from gnomon.api.training import TrainingStep
from gnomon.catalog import model_title
from gnomon.engines import training_engine
from gnomon.engines.training.job import job_of
from gnomon.errors import GnomonError, InputError
from gnomon.load import model as load_model
from gnomon.load import parse_pool
from gnomon.load.recipe import recipe_of, recipe_to_settings
from gnomon.spec import EngineChoice, Estimate, Plan, Pool, Recipe, Strategy, TrainingLoad

HOURS, DAYS = 3600.0, 86400.0
MEMORY_SOURCE = "tensor by tensor"
_FLAGS = {"strategy.": "--", "load.": "--", "engine.settings.": "--"}


def simulate_training(
    model: str | Path,
    *,
    on: str,
    seq: int,
    global_batch: int,
    micro_batch: int = 1,
    tp: int = 1,
    pp: int = 1,
    vp: int = 1,
    cp: int = 1,
    ep: int = 1,
    dp: int | None = None,
    zero: int = 0,
    schedule: str | None = None,
    recompute: str = "none",
    optimizer: str = "adamw",
    sequence_parallel: bool = True,
    dtype: str | None = None,
    engine: str = "megatron",
    tokens: float | None = None,
) -> TrainingReport:
    """Seconds, memory of every rank, energy and dollars of one step of `global_batch` sequences of `seq` tokens.

    Without a data-parallel degree the chips that the other degrees leave are used for it. With `tokens`, the whole
    run is answered too.
    """
    pool = parse_pool(on)
    degrees = {"tp": tp, "pp": pp, "vp": vp, "cp": cp, "ep": ep}
    strategy = _strategy(pool, {name: _positive(value, f"--{name}") for name, value in degrees.items()}, dp)
    settings = {
        "micro_batch": _positive(micro_batch, "--micro-batch"),
        "zero": whole(zero, "--zero"),
        "schedule": schedule or ("interleaved" if strategy.vp > 1 else "1f1b"),
        "recompute": recompute,
        "optimizer": optimizer,
        "sequence_parallel": bool(sequence_parallel) and strategy.tp > 1,
    }
    load = TrainingLoad(
        seq=_positive(seq, "--seq"), global_batch=_positive(global_batch, "--global-batch"), tokens=tokens
    )
    try:
        plan = training_plan(model, pool, strategy, recipe_of(settings), load, dtype, engine)
        return report(plan, pool)
    except GnomonError as error:
        error.where = _flag(error.where)
        raise


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
        chip=pool.chip.name,
        replicas=1,
        strategy=strategy,
        dtype=dtype or load_model(model).working_dtype,
        engine=EngineChoice(name=chosen.name, version=chosen.version, settings=settings),
        load=load,
    )


def step_of(plan: Plan, pool: Pool) -> TrainingStep:
    """A plan's step, once the plan is known to be possible."""
    job, chosen = job_of(plan), training_engine(plan.engine.label)
    pool.chip.rate(plan.dtype)
    chosen.check(job.model, plan.strategy, job.recipe, job.load, plan.dtype)
    if plan.strategy.techniques:
        raise InputError(f"no technique is known yet, and '{plan.strategy.techniques[0]}' is asked for")
    for name in ("cp", "ep"):
        if getattr(plan.strategy, name) > 1:
            raise InputError(
                f"{getattr(plan.strategy, name)} is not priced yet", where=f"strategy.{name}", hint="Use 1."
            )
    return TrainingStep(chosen, job, pool)


def report(plan: Plan, pool: Pool) -> TrainingReport:
    return report_step(step_of(plan, pool))


def report_step(step: TrainingStep) -> TrainingReport:
    """A step as an answer."""
    plan, load, chip = step.job.plan, step.job.load, step.pool.chip
    seconds, ranks = step.step_s, plan.strategy.ranks
    peak = ranks * chip.rate(plan.dtype)
    flops = step.flops
    cost = ranks * chip.price_usd_h * seconds.value / HOURS
    each = plan.strategy.tp * plan.strategy.dp
    return TrainingReport(
        title=_title(step),
        step_time_s=seconds,
        mfu=flops["model"] / seconds.value / peak,
        hfu=(flops["model"] + flops["again"]) / seconds.value / peak,
        tokens_per_s_per_gpu=load.step_tokens / seconds.value / ranks,
        peak_memory_bytes=Estimate.exact(max(step.peaks), MEMORY_SOURCE),
        usable_memory_bytes=step.usable_bytes,
        fits=max(step.peaks) <= step.usable_bytes,
        ranks=tuple(
            {"rank": rank, "pipeline_rank": rank // each, "peak_memory_bytes": step.peaks[rank // each]}
            for rank in range(ranks)
        ),
        memory_parts=tuple(_parts(step, rank) for rank in range(plan.strategy.pp)),
        bubble_fraction=step.timeline.bubble_fraction,
        exposed_communication_s=max(seconds.value - step.quiet_s, 0.0),
        step_parts=_step_parts(step),
        micro_batches=int(step.figures.micros[0]),
        energy_j=step.energy_j,
        cost_usd=cost,
        run=_run(step, cost),
        inputs=_inputs(step),
        plan=plan,
        step=step,
    )


def _strategy(pool: Pool, degrees: dict[str, Any], dp: int | None) -> Strategy:
    taken = degrees["tp"] * degrees["pp"] * degrees["cp"]
    left, rest = divmod(pool.count, taken)
    if dp is None:
        if rest:
            near = [n for n in (left * taken, (left + 1) * taken) if n]
            hint = f"Use {' or '.join(f'{pool.chip.name}:{n}' for n in near)}."
            raise InputError(f"{pool.count} chips are no multiple of tp x pp x cp = {taken}", where="--on", hint=hint)
        return Strategy(**degrees, dp=left)
    dp = _positive(dp, "--dp")
    if taken * dp != pool.count:
        hint = f"Use --on {pool.chip.name}:{taken * dp}, or leave --dp out."
        raise InputError(f"tp x pp x cp x dp = {taken * dp} chips are asked for and {pool.count} given", where="--dp",
                         hint=hint)  # fmt: skip
    return Strategy(**degrees, dp=dp)


def _positive(value: Any, flag: str) -> int:
    number = whole(value, flag)
    if number < 1:
        raise InputError(f"{number} is below 1", where=flag)
    return number


def _flag(where: str) -> str:
    """A plan's field as the flag that gave it."""
    for field, dashes in _FLAGS.items():
        if where.startswith(field):
            return dashes + where.removeprefix(field).replace("_", "-")
    return where


def _title(step: TrainingStep) -> str:
    plan, load = step.job.plan, step.job.load
    name = model_title(plan.model) if "/" not in plan.model else step.job.model.name
    chips = f"{plan.strategy.ranks:,} x {plan.chip}"
    batch = f"a step of {load.global_batch:,} sequences of {load.seq:,} tokens"
    return f"{name}, {plan.dtype}, {chips}, {step.engine.title} {step.engine.version}: {batch}"


def _parts(step: TrainingStep, rank: int) -> dict[str, float]:
    memory = step.memory(rank)
    names = ("weights", "gradients", "optimizer", "activations", "working")
    return {name: float(getattr(memory, name)[0]) for name in names}


def _step_parts(step: TrainingStep) -> dict[str, float]:
    line, found = step.timeline, step.figures
    return {
        "pipeline_s": line.pipeline_s,
        "gradient_reduction_s": line.optimizer_start_s - line.pipeline_s,
        "optimizer_s": float(found.optimizer_s[0]),
        "weight_gather_s": float(found.gather_s[0]),
    }


def _run(step: TrainingStep, cost_usd: float) -> dict[str, float]:
    steps = step.job.load.steps
    if steps is None:
        return {}
    return {
        "steps": steps,
        "days": steps * step.step_s.value / DAYS,
        "cost_usd": steps * cost_usd,
        "energy_kwh": steps * step.energy_j / 3.6e6,
    }


def _inputs(step: TrainingStep) -> dict[str, Any]:
    plan, load = step.job.plan, step.job.load
    degrees = {name: getattr(plan.strategy, name) for name in ("tp", "pp", "vp", "cp", "ep", "dp")}
    words: dict[str, Any] = {"model": plan.model, "on": f"{plan.chip}:{step.pool.count}", "dtype": plan.dtype}
    words |= {"seq": load.seq, "global_batch": load.global_batch, "tokens": load.tokens, "engine": plan.engine.label}
    return words | degrees | dict(plan.engine.settings)
