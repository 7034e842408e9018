"""What a training step may be: formats that are priced, and steps short enough to time."""

from __future__ import annotations

from collections.abc import Sequence

from gnomon.engines import TrainingEngine, training_engine, training_engines
from gnomon.engines.training.job import check_job, check_narrow
from gnomon.engines.training.recomputed import check_recompute
from gnomon.engines.training.traits import Traits
from gnomon.errors import InputError
from gnomon.graph.gemm_recipes import GEMM_RECIPES
from gnomon.spec import Chip, Model, Pool
from gnomon.spec.recompute import FULL
from gnomon.spec.training import PRECISION
from gnomon.spec.training_job import TrainingJob

CHIPS = "strategy"
"""Where an error stands that is about the chips: the degrees of a plan say how many there are."""
USUAL = ("bf16", "fp16", "fp8")
DTYPES = (*USUAL, "tf32", "fp32")
"""Formats whose training is priced: activations and working weights of two bytes; with fp8 and the other recipes
(`graph.gemm_recipes`), GEMMs of one byte or less; with fp32 and tf32 all of four bytes, and GEMMs as they say."""
MOST_CHIPS = 1_000_000
MOST_TASKS = 5_000_000
"""Passes of a step over all pipeline ranks; they are timed one by one."""


def check_step(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise InputError where the step cannot be priced: what no engine runs, what this one does not, what would take
    minutes to time or gigabytes to answer. Places are the fields of a plan."""
    check_job(job)
    check_schedule(job, engine)
    check_stages(job, engine)
    check_shards(job, engine)
    traits = engine.traits(job.model, job.recipe.optimizer, job.dtype)
    check_dtype(job.pool, job.model, job.dtype, traits)
    check_second_copies(job, engine)
    check_pieces(job, engine)
    check_graphs(job, engine)
    check_recompute(job.model, job.recipe.recompute, job.load, traits, engine.title)
    check_gather(job, engine)
    strategy = job.strategy
    check_chips(strategy.ranks)
    micros = job.load.global_batch // (strategy.dp * job.recipe.micro_batch)
    check_tasks(job.load.global_batch, micros, strategy.pp * strategy.vp)
    engine.check(job.model, strategy, job.recipe, job.load, job.dtype)


def check_schedule(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise for a schedule that the engine does not run, with those that it does and an engine that runs it."""
    name, runs = job.recipe.schedule, engine.traits(job.model, job.recipe.optimizer, job.dtype).schedules
    if job.strategy.pp == 1 or name in runs:
        return
    others = (training_engine(other) for other in training_engines() if other != engine.name)
    able = [one.name for one in others if name in one.traits(job.model).schedules]
    beside = f", or the engine {' or '.join(able)}" if able else ""
    message = f"{engine.title}'s pipeline has no schedule {name}"
    raise InputError(message, where="engine.settings.schedule", hint=f"Use {' or '.join(runs) or 'a pp of 1'}{beside}.")


def check_stages(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise where stages are given and the engine, or a technique of the plan, needs equal ones."""
    if not job.recipe.layers_per_stage or job.strategy.pp == 1:
        return
    where = "engine.settings.layers_per_stage"
    if not engine.traits(job.model, job.recipe.optimizer, job.dtype).uneven_stages:
        able = [name for name in training_engines() if training_engine(name).traits(job.model).uneven_stages]
        message = f"{engine.title} {engine.version} makes stages of equal numbers of layers"
        raise InputError(message, where=where, hint=f"Leave it out, or use the engine {' or '.join(able)}.")
    if job.strategy.techniques:
        message = f"the technique {job.strategy.techniques[0]} is not priced with stages of given numbers of layers"
        raise InputError(message, where=where, hint="Leave one of them out.")


def check_shards(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise where an engine shards states over all data-parallel ranks alone."""
    shards, dp = job.recipe.dp_shard, job.strategy.dp
    if not shards or dp == 1 or shards == dp:
        return
    has = engine.traits(job.model, job.recipe.optimizer, job.dtype).hybrid_shards
    if job.recipe.zero not in has:
        hint = f"Use {' or '.join(map(str, has))} as zero, or 0 here." if has else "Use 0, or the engine torchtitan."
        message = f"{engine.title} {engine.version} shards ZeRO {job.recipe.zero} over all data-parallel ranks"
        raise InputError(message, where="engine.settings.dp_shard", hint=hint)


def check_second_copies(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise where an engine gathers weights from all ranks that share them out."""
    asked = job.recipe.hpz and job.strategy.dp * job.strategy.cp > 1
    if asked and not engine.traits(job.model, job.recipe.optimizer, job.dtype).second_copies:
        message = f"{engine.title} {engine.version} keeps no second copy of sharded weights"
        hint = "Leave it out, or use the engine deepspeed."
        raise InputError(message, where="engine.settings.hpz", hint=hint)


def check_pieces(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise where an engine runs collectives of tensor parallelism in one."""
    asked = job.recipe.tp_overlap and job.strategy.tp > 1
    if asked and not engine.traits(job.model, job.recipe.optimizer, job.dtype).pieces:
        message = f"{engine.title} {engine.version} does not cut collectives of tensor parallelism into pieces"
        hint = "Leave it out, or use the engine megatron or torchtitan."
        raise InputError(message, where="engine.settings.tp_overlap", hint=hint)


def check_graphs(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise where kernels are not replayed from CUDA graphs: sizes have to be the same in every step."""
    where, traits = "engine.settings.cuda_graphs", engine.traits(job.model, job.recipe.optimizer, job.dtype)
    if not job.recipe.cuda_graphs:
        return
    if not traits.cuda_graphs:
        message = f"{engine.title} {engine.version} is priced without CUDA graphs"
        raise InputError(message, where=where, hint="Leave it out, or use the engine megatron.")
    if job.load.sequences is not None:
        message = "sequences differ in length, and a CUDA graph has the sizes it was captured with"
        raise InputError(message, where=where, hint="Leave it out.")
    if job.model.is_moe and not job.recipe.pad_to_capacity and job.recipe.recompute.startswith(FULL):
        message = "layers that are recomputed in full are captured with all their kernels, and rows of experts vary"
        raise InputError(message, where=where, hint="Set pad_to_capacity, or use the recompute none or selective.")


def check_gather(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise where an engine does not gather weights in the format of their GEMMs."""
    if not job.recipe.fp8_param_gather:
        return
    where, traits = "engine.settings.fp8_param_gather", engine.traits(job.model, job.recipe.optimizer, job.dtype)
    if job.dtype not in [one.name for one in traits.recipes] or traits.style.recipe.gathered_bytes is None:
        able = [one.name for one in traits.recipes if one.gathered_bytes is not None]
        hint = f"Leave it out, or use {' or '.join(able)}." if able else "Leave it out."
        message = f"{engine.title} {engine.version} gathers no weights in {job.dtype}"
        raise InputError(message, where=where, hint=hint)


def check_precision(job: TrainingJob, engine: TrainingEngine) -> None:
    """Raise for settings of formats that no plan of a search could have."""
    if any(getattr(job.recipe, name) for name in PRECISION):
        check_narrow(job)
        check_gather(job, engine)
        engine.check(job.model, job.strategy, job.recipe, job.load, job.dtype)


def check_chips(count: int) -> None:
    if count > MOST_CHIPS:
        raise InputError(f"{count:,} chips are more than {MOST_CHIPS:,}", where=CHIPS)


def training_dtype(model: Model, chip: Chip) -> str:
    """As stored where the chip has it; else, and for what is stored in fp32, the chip's own 16 bits."""
    own = model.working_dtype
    return own if own in USUAL and own in chip.rates_flops else chip.half


def check_dtype(pool: Pool, model: Model, dtype: str, traits: Traits) -> None:
    usable = [own for own in DTYPES if own in pool.chip.rates_flops]
    if not usable:
        raise InputError(f"{pool.chip.name} has none of {', '.join(DTYPES)}, which training is priced in", where=CHIPS)
    if dtype in GEMM_RECIPES:
        _check_recipe(pool.chip, model, dtype, traits, usable)
        return
    if dtype not in usable:
        why = f"{pool.chip.name} has no {dtype}" if dtype in DTYPES else f"training in {dtype} is not priced yet"
        raise InputError(why, where="dtype", hint=f"Use {' or '.join(usable)}.")
    if dtype == "tf32" and pool.chip.vendor not in traits.tf32_vendors:
        message = f"GEMMs of fp32 run in tf32 on chips of {' and '.join(traits.tf32_vendors)} alone"
        raise InputError(message, where="dtype", hint="Use fp32 or bf16, or the engine torchtitan.")


def _check_recipe(chip: Chip, model: Model, dtype: str, traits: Traits, usable: Sequence[str]) -> None:
    """Raise for a recipe of eight bits or fewer that the chip cannot multiply in, or that is not among the engine's.
    Engines that have none say so themselves."""
    own = [one.name for one in traits.recipes]
    if obstacle := GEMM_RECIPES[dtype].obstacle(chip):
        able = [one.name for one in traits.recipes if not one.obstacle(chip) and one.name not in usable]
        raise InputError(obstacle, where="dtype", hint=f"Use {' or '.join([*usable, *able])}.")
    if own and dtype not in own:
        having = [name for name in training_engines() if dtype in _recipes(name, model)]
        beside = f", or the engine {' or '.join(having)}" if having else ""
        message = f"the engine has no recipe {dtype} for its GEMMs"
        raise InputError(message, where="dtype", hint=f"Use {' or '.join(own)}{beside}.")


def _recipes(engine: str, model: Model) -> list[str]:
    return [one.name for one in training_engine(engine).traits(model).recipes]


def check_tasks(global_batch: int, micros: int, stages: int) -> None:
    most = MOST_TASKS // (2 * stages)
    if micros > most:
        hint = f"Use at most about {max(1, global_batch * most // micros):,}, or larger micro-batches."
        raise InputError(
            f"a step of {micros:,} micro-batches is too long to time", where="load.global_batch", hint=hint
        )
