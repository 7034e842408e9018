"""Checks of what the built-in runner supports. Imports no torch, so a plan is rejected before anything starts."""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.training.job import cut
from gnomon.errors import InputError, unknown_name
from gnomon.graph.trained import check_trained
from gnomon.spec import AttentionMixer, Model, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import MAX_ZERO, OPTIMIZERS, RECOMPUTE, RUN, SCHEDULES

DTYPES = ("bf16", "fp32")
"""fp16 would need loss scaling, which the runner does not have."""


def check(model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
    """Raise InputError where the runner does not support a job, naming what it supports."""
    check_trained(model, "the built-in runner")
    _check_recipe(recipe, dtype)
    _check_strategy(strategy)
    _check_model(model, strategy, load)
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


def _check_recipe(recipe: Recipe, dtype: str) -> None:
    for name, known in (("schedule", SCHEDULES), ("recompute", RECOMPUTE), ("optimizer", OPTIMIZERS)):
        value = getattr(recipe, name)
        if value not in known:
            raise unknown_name(name, value, known, where=f"engine.settings.{name}")
    if recipe.optimizer not in RUN:
        hint = f"Use {' or '.join(RUN)}, or the engine megatron."
        message = f"the built-in runner does not support {recipe.optimizer}"
        raise InputError(message, where="engine.settings.optimizer", hint=hint)
    if dtype not in DTYPES:
        hint = f"Use {' or '.join(DTYPES)}; the engine megatron trains in fp16 and fp8 too."
        raise InputError(f"the built-in runner does not train in {dtype}", where="dtype", hint=hint)
    if not 0 <= recipe.zero <= MAX_ZERO:
        message = f"{recipe.zero} is not a ZeRO stage"
        raise InputError(message, where="engine.settings.zero", hint=f"Use 0 to {MAX_ZERO}.")
    if recipe.optimizer == "adamw-bf16" and dtype != "bf16":
        hint = "Use adamw, whose states are fp32."
        raise InputError(f"adamw-bf16 does not support {dtype} weights", where="engine.settings.optimizer", hint=hint)


def _check_strategy(strategy: Strategy) -> None:
    for name in ("tp", "pp", "vp", "dp"):
        if getattr(strategy, name) < 1:
            raise InputError(f"{getattr(strategy, name)} is less than 1", where=f"strategy.{name}", hint="Use 1.")
    for name, what in (("cp", "context"), ("ep", "expert")):
        if getattr(strategy, name) != 1:
            message = f"the built-in runner has no {what} parallelism, and {name} is {getattr(strategy, name)}"
            raise InputError(message, where=f"strategy.{name}", hint="Use 1.")
    if strategy.techniques:
        message = f"the built-in runner does not support the technique {strategy.techniques[0]}"
        raise InputError(message, where="strategy.techniques", hint="Leave it out.")


def _check_model(model: Model, strategy: Strategy, load: TrainingLoad) -> None:
    if model.is_moe:
        message = f"the built-in runner does not support mixtures of experts, and {model.name} is one"
        raise InputError(message, where="model", hint="Use a dense model.")
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


def _check_cuts(model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad) -> None:
    cut(model.layers, strategy.pp * strategy.vp, "layers", "strategy, pp x vp")
    for block in model.blocks:
        cut(block.attention.heads, strategy.tp, "attention heads", "strategy.tp")
        cut(block.attention.kv_heads, strategy.tp, "key-value heads", "strategy.tp")
        cut(block.feed_forward.inner, strategy.tp, "columns of the feed-forward part", "strategy.tp")
    cut(model.vocab, strategy.tp, "tokens of the vocabulary", "strategy.tp")
    if recipe.sequence_parallel:
        cut(load.seq, strategy.tp, "tokens of a sequence", "strategy.tp")


def _check_pipeline(strategy: Strategy, recipe: Recipe, micros: int) -> None:
    pp, schedule = strategy.pp, recipe.schedule
    if strategy.vp > 1 and (pp == 1 or schedule != "interleaved"):
        message = f"{strategy.vp} model chunks per rank need the schedule interleaved and a pipeline"
        hint = "Use 1, or set schedule to interleaved and pp to 2 or more."
        raise InputError(message, where="strategy.vp", hint=hint)
    if pp == 1:
        return
    if schedule == "interleaved" and strategy.vp == 1:
        hint = "Use 2 or more, or the schedule 1f1b."
        raise InputError("the schedule interleaved needs several model chunks per rank", where="strategy.vp", hint=hint)
    if schedule == "1f1b" and micros < pp:
        hint = f"Use a global batch of {pp * strategy.dp * recipe.micro_batch} or more, or the schedule gpipe."
        message = f"{micros} micro-batches do not fill {pp} stages of 1f1b"
        raise InputError(message, where="load.global_batch", hint=hint)
    if schedule == "interleaved" and micros % pp:
        hint = f"Use a global batch of a multiple of {pp * strategy.dp * recipe.micro_batch}."
        message = f"the schedule interleaved takes micro-batches {pp} at a time, and {micros} is not a multiple of it"
        raise InputError(message, where="load.global_batch", hint=hint)
