"""A TorchTitan command, recipe or TOML file read back as a training plan. Every option acts, is listed as ignored with
the reason, or is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines.command_line import Value, unused_flags
from gnomon.engines.operations import Variable
from gnomon.engines.torchtitan import formats
from gnomon.engines.torchtitan.options import SCHEDULES, TRAIN
from gnomon.engines.torchtitan.recipes import (
    CHECKPOINTING,
    FLAVOR,
    MODEL,
    REGISTRY,
    python_options,
    registered,
    sizes,
    toml_options,
)
from gnomon.engines.training.expressed import Named, offloaded, saved, streamed
from gnomon.engines.training.imported import TrainingOptions, data_parallel, load_of, read_flags
from gnomon.engines.training.launched import LaunchedProgram
from gnomon.engines.training.operations import ImportedTraining, ModelShape, TrainingNames
from gnomon.engines.training.wide import imported
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Recipe, Strategy
from gnomon.spec.recompute import EVERY, OP, RECOMPUTE, parse

WRAPPER, WRAPPED = "run_train.sh", "8"
"""TorchTitan's own script, and the processes that it starts where NGPU does not say it."""
SECTIONS = (
    "job", "model", "training", "parallelism", "activation_checkpoint", "compile", "optimizer", "lr_scheduler",
    "checkpoint", "metrics", "profiling", "comm", "memory_estimation", "quantize", "validation", "float8",
    "experimental",
)  # fmt: skip
DEGREES = {
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
    "ep": "expert_parallel_degree",
}
_ROTATED = {"allgather": "allgather", "alltoall": "p2p"}
_SUBCOMMAND = re.compile(r"activation[-_]checkpoint:([\w-]+)")
NO_EFFECT = {
    "which tokens are trained on": "training.dataset training.dataset_path dataloader* training.dataloader* "
    "hf_assets_path model.hf_assets_path model.tokenizer_path tokenizer*",
    "hyperparameters, which no time depends on": "lr_scheduler* optimizer.lr optimizer.beta1 optimizer.beta2 "
    "optimizer.eps optimizer.weight_decay optimizer.implementation training.max_norm training.seed debug.seed "
    "training.deterministic loss.global_vocab_size training.warmup_steps",
    "what is logged and measured": "job* metrics* profiling* profiler* dump_folder debug* model.print_after_conversion",
    "evaluation, which plans do not price": "validation* validator*",
    "when and how processes meet and end": "comm* training.gc_freq training.gc_debug fault_tolerance* "
    "memory_estimation*",
    "how checkpoints are laid out and loaded": "checkpoint*",
    "as it is priced": "compile.components compile.backend compile.enable parallelism.disable_loss_parallel "
    "training.mixed_precision_reduce activation_checkpoint* parallelism.context_parallel_load_balancer "
    "parallelism.pipeline_parallel_schedule_csv parallelism.spmd_backend training.disable_cuda_graphs quantize* "
    "float8* loss* parallelism.expert_parallel_comm_backend parallelism.expert_tensor_parallel_degree",
}
NOT_MODELLED = {
    "updates during the backward pass": "optimizer.early_step_in_backward",
    "communication by symmetric memory": "parallelism.enable_fsdp_symm_mem",
    "layers by pipeline stage": "parallelism.pipeline_parallel_first_stage_less_layers "
    "parallelism.pipeline_parallel_last_stage_less_layers parallelism.pipeline_parallel_split_points",
    "code of your own": "experimental* override* model_spec",
}
UNUSED = unused_flags(NO_EFFECT, NOT_MODELLED)


def reads(program: LaunchedProgram) -> bool:
    """Whether a program is TorchTitan's trainer, or its own script around it."""
    return program.program == TRAIN or program.program.endswith("torchtitan/train.py") or program.name == WRAPPER


def known_fields(fields: Mapping[str, Any]) -> int:
    """Sections of a file in TOML that are TorchTitan's."""
    own = all(isinstance(fields.get(name), Mapping) for name in ("model", "training"))
    return sum(name in SECTIONS for name in fields) if own else 0


def import_training(program: LaunchedProgram, names: TrainingNames) -> ImportedTraining:
    values = _values(program, names)
    options = TrainingOptions(values, UNUSED, dashes="" if program.fields else "--")
    module, flavor = options.text(MODEL, default="llama3"), options.text(FLAVOR)
    found = sizes(module, flavor) if flavor else None
    shape = _shape(found) if found else None
    strategy, shards, stages = _degrees(options, _ranks(program), found[0] if found else 0, program.name)
    micro, load = _batch(options, strategy)
    recipe = replace(_recipe(options, strategy, shards, moe=bool(shape and shape.experts)), micro_batch=micro)
    narrow = formats.read(options)
    gathered = formats.read_gathered(options, narrow) and recipe.zero > 0
    wide = formats.read_wide(options, found[0] if found else 0)
    recipe = replace(recipe, fp8_param_gather=gathered, bf16_layers=wide if narrow else "")
    full = options.text("training.mixed_precision_param", default="bfloat16") == "float32"
    techniques = _techniques(options)
    _notes(options)
    return ImportedTraining(
        shape=shape,
        stages=stages,
        strategy=strategy,
        techniques=techniques,
        recipe=recipe,
        load=load,
        dtype=narrow or (imported("fp32", program.environment) if full else "bf16"),
        ignored=(*options.ignored, *options.left()),
    )


def _values(program: LaunchedProgram, names: TrainingNames) -> dict[str, Value]:
    """Options of a file, and above them those of the command."""
    if program.fields:
        return toml_options(program.fields)
    words = [word for word in program.arguments if not _SUBCOMMAND.fullmatch(word)]
    modes = [found[1] for word in program.arguments if (found := _SUBCOMMAND.fullmatch(word))]
    given = {_plain(name): value for name, value in read_flags(words).items()}
    file = _text(given.pop("job.config_file", None) or program.environment.get("CONFIG_FILE", ""))
    module = _text(given.pop("module", None) or program.environment.get("MODULE", ""))
    function = _text(given.pop("config", None) or program.environment.get("CONFIG", ""))
    if file:
        base = toml_options(names.config(file))
    elif module in REGISTRY and function:
        base = registered(module, function)
    elif module and function:
        place = f"{module.replace('.', '/')}.py"
        base = python_options(names.text(place), function, place)
    else:
        hint = "`--module recipe --config plan`, or `--job.config_file FILE.toml`, does."
        raise InputError("the command names no configuration", where=program.name, hint=hint)
    return base | given | ({CHECKPOINTING: modes[-1]} if modes else {})


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _text(value: Value | None) -> str:
    if isinstance(value, Variable):
        return value.rpartition("/")[2] if "$" not in value.rpartition("/")[2] else ""
    return str(value) if value and value is not True else ""


def _ranks(program: LaunchedProgram) -> int:
    if program.name != WRAPPER:
        return program.ranks
    given = program.environment.get("NGPU", WRAPPED)
    each = int(given) if re.fullmatch(r"\d{1,4}", str(given)) else 0
    return each * max(1, program.nodes)


def _shape(found: tuple[int, ...]) -> ModelShape:
    layers, hidden, heads, kv_heads, inner, vocab, experts = found
    return ModelShape(
        layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, inner=inner, vocab=vocab, experts=experts
    )


def _degrees(options: TrainingOptions, ranks: int, layers: int, where: str) -> tuple[Strategy, int, tuple[int, ...]]:
    """All degrees, the data-parallel ranks that share states out, and the layers of each pipeline part where they are
    said."""
    degrees = {short: options.whole(f"parallelism.{name}", default=1) for short, name in DEGREES.items()}
    copies = options.whole("parallelism.data_parallel_replicate_degree", default=1)
    shards = options.whole("parallelism.data_parallel_shard_degree", default=-1, least=-1)
    strategy = Strategy(tp=degrees["tp"], pp=degrees["pp"], cp=degrees["cp"], ep=degrees["ep"])
    each = strategy.tp * strategy.pp * strategy.cp
    dp = copies * shards if shards > 0 and not ranks else data_parallel(ranks, strategy, where)
    if shards > 0 and dp != copies * shards:
        message = f"{copies} x {shards} copies and shards of {each} chips are not the {ranks} that are started"
        raise InputError(message, where="parallelism.data_parallel_shard_degree")
    shards = shards if shards > 0 else dp // copies
    parts = _parts(options)
    vp = _virtual(options, strategy, layers, len(parts))
    return replace(strategy, dp=dp, vp=vp), shards, parts


def _parts(options: TrainingOptions) -> tuple[int, ...]:
    given = options.take("parallelism.module_fqns_per_model_part")
    if not given or isinstance(given, bool | Variable):
        return ()
    parts = given if isinstance(given, tuple) else (str(given),)
    return tuple(len(re.findall(r"layers\.\d+", part)) for part in parts)


def _virtual(options: TrainingOptions, strategy: Strategy, layers: int, parts: int) -> int:
    """Parts of the network that a pipeline rank holds; looped schedules have two where nothing says otherwise."""
    each = options.whole("parallelism.pipeline_parallel_layers_per_stage", default=0, least=0)
    looped = _schedule(options, peek=True) == "interleaved"
    if strategy.pp == 1 or not looped:
        return 1
    if parts:
        return max(1, parts // strategy.pp)
    if each and layers:
        return max(2, -(-(layers + 2) // each) // strategy.pp)
    return 2


def _schedule(options: TrainingOptions, *, peek: bool = False) -> str:
    name = "parallelism.pipeline_parallel_schedule"
    text = str(options.values.get(name, "1F1B")) if peek else options.text(name, default="1F1B")
    known = {theirs.lower(): ours for ours, theirs in SCHEDULES.items()}
    if text.lower() not in known:
        raise unknown_name("schedule", text, tuple(SCHEDULES.values()), where=options.where(name))
    return known[text.lower()]


def _batch(options: TrainingOptions, strategy: Strategy) -> tuple[int, Any]:
    local = options.whole("training.local_batch_size", "training.batch_size", default=8)
    batch = options.whole("training.global_batch_size", default=-1, least=-1)
    batch = batch if batch > 0 else local * strategy.dp
    cut = options.whole("parallelism.pipeline_parallel_microbatch_size", default=1)
    micro = cut if strategy.pp > 1 else local
    if strategy.pp > 1 and batch > local * strategy.dp:
        options.unmodelled(f"{batch // (local * strategy.dp)} pipeline runs per step", "priced as one")
    seq, steps = options.whole("training.seq_len", default=2048), options.whole("training.steps", default=10000)
    return micro, load_of(seq, batch, steps)


def _recipe(options: TrainingOptions, strategy: Strategy, shards: int, moe: bool) -> Recipe:
    mode = options.text(CHECKPOINTING, default="selective")
    if mode not in RECOMPUTE:
        message = f"activation checkpointing by {mode} is not modelled: what it saves is known once it is compiled"
        raise InputError(message, where=options.where(CHECKPOINTING), hint="Use selective or full.")
    layers = options.text("activation_checkpoint.selective_ac_option", default=OP)
    if mode == "selective" and layers != OP:
        mode = parse(f"{EVERY}={layers}", options.where("activation_checkpoint.selective_ac_option")).text
    named = options.text("optimizer.name", default="AdamW")
    if named not in ("AdamW", "Adam"):
        message = f"the optimizer {named} is not modelled under TorchTitan"
        raise InputError(message, where=options.where("optimizer.name"))
    kept = options.text("training.dtype", default="float32")
    resharded = options.text("parallelism.fsdp_reshard_after_forward", default="default")
    always = resharded == "always" or (resharded == "default" and strategy.pp == 1)
    rotated = options.choice(_ROTATED, "parallelism.context_parallel_rotate_method", default="allgather")
    sharded = shards > 1 or strategy.cp > 1
    sequence = options.flag("parallelism.enable_sequence_parallel", default=True)
    pieces = options.flag("compile.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel")
    cut = moe and strategy.tp > 1 and options.whole("parallelism.expert_tensor_parallel_degree", default=1) == 1
    return Recipe(
        schedule=_schedule(options),
        recompute=mode,
        zero=(3 if always else 2) if sharded else 0,
        dp_shard=shards if sharded and shards < strategy.dp else 0,
        optimizer="adamw-bf16" if kept == "bfloat16" else "adamw",
        sequence_parallel=sequence,
        tp_overlap=pieces and sequence and strategy.tp > 1,
        cp_comm=rotated if strategy.cp > 1 else Recipe().cp_comm,
        expert_tp=1 if cut else 0,
    )


def _techniques(options: TrainingOptions) -> Named:
    every = options.whole("checkpoint.interval", default=500)
    mode = options.text("checkpoint.async_mode", default="disabled")
    on = options.flag("checkpoint.enable", "checkpoint.enable_checkpoint")
    found = saved(every, waits=mode == "disabled") if on else {}
    return found | ({**offloaded(1.0), **streamed()} if options.flag("training.enable_cpu_offload") else {})


def _notes(options: TrainingOptions) -> None:
    if not options.flag("compile.enable", "training.compile"):
        options.unmodelled("no torch.compile", "priced as compiled; the version 2024-eager is without it")
    for name in ("parallelism.enable_fsdp_symm_mem", "optimizer.early_step_in_backward"):
        if options.values.get(name) in (False, "false", "False"):
            options.take(name)
    for name in ("first", "last"):
        if str(options.values.get(f"parallelism.pipeline_parallel_{name}_stage_less_layers", "")) == "0":
            options.take(f"parallelism.pipeline_parallel_{name}_stage_less_layers")
