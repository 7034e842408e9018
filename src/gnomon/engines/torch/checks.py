"""Checks of what the built-in runner supports. Imports no torch, so a plan is rejected before anything starts."""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.torch import optimizers, recompute, techniques
from gnomon.engines.training.job import (
    check_equal_stages,
    check_experts,
    check_shards,
    check_stages,
    chunk_words,
    context_traders,
    cut,
    idle_settings,
)
from gnomon.errors import InputError, unknown_name
from gnomon.graph.trained import check_trained
from gnomon.sim.training import schedule, usual_schedule
from gnomon.spec import AttentionMixer, Block, Model, MoeFfn, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import CP_COMM_NAMES, MAX_ZERO, seldom_set
from gnomon.spec.training_job import TrainingJob

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v", "interleaved-zb")
SUPPORTED = ("layers_per_stage", "dp_shard", "cp_a2a")
"""Settings that most plans leave alone, and that are checked where they matter."""
DTYPES = ("bf16", "fp32")
"""fp16 would need loss scaling, which the runner does not have."""


def check_job(job: TrainingJob) -> None:
    """Raise InputError where the runner does not run a job, its techniques with their values included."""
    check(job.model, job.strategy, job.recipe, job.load, job.dtype)
    techniques.check(job)


def check(model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
    """Raise InputError where the runner does not support a job, naming what it supports."""
    check_trained(model, "the built-in runner")
    _check_recipe(strategy, recipe, dtype)
    _check_strategy(strategy)
    _check_seldom(model, strategy, recipe)
    _check_model(model, strategy, recipe, load)
    _check_cuts(model, strategy, recipe, load)
    _check_pipeline(strategy, recipe, micro_batches(strategy, recipe, load))


def micro_batches(strategy: Strategy, recipe: Recipe, load: TrainingLoad) -> int:
    """Micro-batches per step and data-parallel rank."""
    each = strategy.dp * recipe.micro_batch
    count, rest = divmod(load.global_batch, each)
    if rest:
        near = f"{count * each} or {(count + 1) * each}" if count else f"{each}"
        degrees = f"{strategy.dp} ranks x {recipe.micro_batch} sequences"
        message = f"{load.global_batch} is not a multiple of {each} ({degrees})"
        raise InputError(message, where="load.global_batch", hint=f"Use {near}.")
    return count


def _check_recipe(strategy: Strategy, recipe: Recipe, dtype: str) -> None:
    schedule(recipe.schedule, where="engine.settings.schedule")
    recompute.check(strategy, recipe)
    if dtype not in DTYPES:
        hint = f"Use {' or '.join(DTYPES)}; the engine megatron trains in fp16 and fp8 too."
        raise InputError(f"the built-in runner does not train in {dtype}", where="dtype", hint=hint)
    if not 0 <= recipe.zero <= MAX_ZERO:
        message = f"{recipe.zero} is not a ZeRO stage"
        raise InputError(message, where="engine.settings.zero", hint=f"Use 0 to {MAX_ZERO}.")
    optimizers.check(strategy, recipe, dtype)


def _check_seldom(model: Model, strategy: Strategy, recipe: Recipe) -> None:
    """Settings that most plans leave alone, where they would do something."""
    idle = idle_settings(strategy, model, recipe.expert_tp)
    for name in seldom_set(recipe):
        if name not in (*idle, *SUPPORTED):
            hint = "Leave it out, or use the engine megatron."
            raise InputError("the built-in runner does not run it", where=f"engine.settings.{name}", hint=hint)


def _check_strategy(strategy: Strategy) -> None:
    for name in ("tp", "pp", "vp", "dp", "cp", "ep"):
        if getattr(strategy, name) < 1:
            raise InputError(f"{getattr(strategy, name)} is less than 1", where=f"strategy.{name}", hint="Use 1.")
    techniques.refuse_unknown(strategy.techniques)


def _check_model(model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad) -> None:
    check_experts(model, strategy, recipe)
    for block in model.blocks:
        if (
            not isinstance(block.mixer, AttentionMixer)
            or block.parallel
            or block != replace(model.blocks[0], count=block.count)
        ):
            message = (
                f"the built-in runner supports only identical layers of softmax attention, and {model.name} has others"
            )
            raise InputError(message, where="model", hint="Use --engine megatron.")
        _check_router(model, block)
    if model.is_moe and strategy.tp > 1:
        message = f"the built-in runner does not cut mixtures of experts over {strategy.tp} tensor-parallel ranks"
        raise InputError(message, where="strategy.tp", hint="Use 1, and ep for the experts.")
    if model.tied_embeddings and strategy.pp > 1:
        message = f"{model.name} ties embedding and head, which the built-in runner cannot split over pipeline ranks"
        raise InputError(message, where="strategy.pp", hint="Use 1.")
    if model.learned_positions and load.seq > model.learned_positions:
        message = f"{model.name} has {model.learned_positions} learned positions, fewer than {load.seq} tokens"
        raise InputError(message, where="load.seq", hint=f"Use at most {model.learned_positions}.")
    windows = [block.attention.window for block in model.blocks if block.attention.window is not None]
    if windows and load.seq > min(windows):
        message = f"the built-in runner has no sliding windows, and {model.name} has one of {min(windows)} tokens"
        raise InputError(message, where="load.seq", hint=f"Use at most {min(windows)}.")


def _check_router(model: Model, block: Block) -> None:
    """Routers choose among all experts by their scores alone."""
    ffn = block.ffn
    if not isinstance(ffn, MoeFfn):
        return
    odd = {"groups of experts": ffn.groups > 1, "corrected scores": ffn.correction, "latent experts": ffn.latent}
    for what, has in odd.items():
        if has:
            message = f"the built-in runner has no {what}, and {model.name} has them"
            raise InputError(message, where="model", hint="Use --engine megatron.")


def _check_cuts(model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad) -> None:
    check_stages(model, strategy, recipe)
    check_shards(model, strategy, recipe)
    if strategy.pp * strategy.vp > model.layers and not recipe.layers_per_stage:
        check_equal_stages(model, strategy)
    for block in model.blocks:
        cut(block.attention.heads, strategy.tp, "attention heads", "strategy.tp")
        cut(block.attention.kv_heads, strategy.tp, "key-value heads", "strategy.tp")
        if not isinstance(block.ffn, MoeFfn):
            cut(block.feed_forward.inner, strategy.tp, "columns of the feed-forward part", "strategy.tp")
    cut(model.vocab, strategy.tp, "tokens of the vocabulary", "strategy.tp")
    pieces = strategy.tp if recipe.sequence_parallel else 1
    cut(load.seq, pieces, "tokens of a sequence", "strategy.tp")
    if strategy.cp > 1:
        _check_context(model, strategy, recipe)
        cut(load.seq, 2 * strategy.cp * pieces, "tokens of a sequence", "strategy.cp, two pieces a rank")


def _check_context(model: Model, strategy: Strategy, recipe: Recipe) -> None:
    where = "engine.settings.cp_comm"
    if recipe.cp_comm not in CP_COMM_NAMES:
        raise unknown_name("context-parallel communication", recipe.cp_comm, CP_COMM_NAMES, where=where)
    traders = context_traders(strategy, recipe)
    for block in model.blocks:
        for heads in (block.attention.heads, block.attention.kv_heads):
            cut(heads // strategy.tp, traders, "heads of a tensor-parallel rank", "strategy.cp")


def _check_pipeline(strategy: Strategy, recipe: Recipe, micros: int) -> None:
    pp, chosen = strategy.pp, schedule(recipe.schedule)
    if pp == 1 and strategy.vp > 1:
        message = f"{strategy.vp} model chunks per rank need a pipeline"
        raise InputError(message, where="strategy.vp", hint="Use 1, or a pp of 2 or more.")
    if pp == 1:
        return
    if chosen.name not in SCHEDULES:
        message = f"the built-in runner does not run the schedule {chosen.name}"
        raise InputError(message, where="engine.settings.schedule", hint=f"Use {' or '.join(SCHEDULES)}.")
    if not chosen.takes_chunks(strategy.vp):
        message = f"the schedule {chosen.name} does not have {strategy.vp} model chunks per rank"
        hint = f"It needs {chunk_words(chosen)}; use the schedule {usual_schedule(strategy.vp).name} for {strategy.vp}."
        raise InputError(message, where="strategy.vp", hint=hint)
    if chosen.even_ranks and pp % 2:
        message = f"the schedule {chosen.name} needs an even number of pipeline ranks, not {pp}"
        raise InputError(message, where="strategy.pp", hint=f"Use {pp + 1}.")
    if chosen.splits_backward:
        _check_split(strategy, recipe)
    each, fills = strategy.dp * recipe.micro_batch, max(chosen.fills(pp), int(chosen.fewest(pp)))
    if micros % int(chosen.multiple(pp)):
        together = int(chosen.multiple(pp))
        message = f"the schedule {chosen.name} takes micro-batches {together} at a time, and {micros} is not a multiple"
        hint = f"Use a global batch of a multiple of {together * each}."
        raise InputError(message, where="load.global_batch", hint=hint)
    if micros < fills:
        message = f"{micros} micro-batches do not fill {pp} stages of {chosen.name}"
        hint = f"Use a global batch of {fills * each} or more, or the schedule gpipe."
        raise InputError(message, where="load.global_batch", hint=hint)


def _check_split(strategy: Strategy, recipe: Recipe) -> None:
    """Weights whose gradients come later are plain tensors, and their inputs are kept."""
    for name, value, plain, where in (
        ("recompute", recipe.recompute, "none", "engine.settings.recompute"),
        ("tp", strategy.tp, 1, "strategy.tp"),
        ("zero", recipe.zero, 1, "engine.settings.zero"),
    ):
        if value != plain and not (name == "zero" and recipe.zero <= 1):
            message = f"the built-in runner does not split backward passes with {name} {value}"
            hint = f"Use {plain}, or the schedule {usual_schedule(strategy.vp).name}."
            raise InputError(message, where=where, hint=hint)
