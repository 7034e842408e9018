"""A command of DeepSpeed, with Megatron-DeepSpeed's options or those of a script of one's own, read back as a training
plan with its configuration. Every option acts, is listed as ignored with the reason, or is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gnomon.engines.command_line import Unused, Value, unused_flags
from gnomon.engines.deepspeed.configured import DeepSpeedSettings, is_config, settings_of
from gnomon.engines.deepspeed.offload import only_recomputed
from gnomon.engines.deepspeed.options import PROGRAM
from gnomon.engines.megatron.arguments import UNUSED as MEGATRON
from gnomon.engines.megatron.imported import note_dropout
from gnomon.engines.operations import Variable
from gnomon.engines.training.expressed import BLOCKING, Named, activations_offloaded, saved
from gnomon.engines.training.imported import MOST_TOKENS, TrainingOptions, data_parallel, load_of, read_flags
from gnomon.engines.training.launched import DEEPSPEED, LaunchedProgram
from gnomon.engines.training.operations import (
    ImportedTraining,
    ModelShape,
    TrainingNames,
)
from gnomon.engines.training.wide import imported
from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy
from gnomon.spec.recompute import FULL, UNIFORM, parse
from gnomon.spec.training import MAX_ZERO

MICRO = "train_micro_batch_size_per_gpu"
CONFIG_FLAGS = ("deepspeed_config", "deepspeed-config")
OWN = {
    "as it is priced": "deepspeed use-flash-attn-v2 use-flash-attn-v1 use-flash-attn-triton cpu-optimizer "
    "no-pipeline-parallel deepspeed-activation-checkpointing torch_adam ds_fused_adam rotary-position-embeddings-theta "
    "local_rank",
}
NOT_MODELLED = {
    "activations cut over ranks": "partition-activations distribute-checkpointed-activations contigious-checkpointing",
    "weights in the host's memory": "remote-device use-pin-memory",
    "mixtures of experts of Megatron-DeepSpeed": "moe-expert-parallel-size mlp-type topk expert-interval "
    "enable-expert-tensor-parallelism moe-train-capacity-factor moe-loss-coeff create-moe-param-group",
    "tokens that are dropped by layer": "random-ltd data-efficiency-curriculum-learning",
    "the zero-bubble schedule": "enable-zbh1-exact-semantics",
}
UNUSED: Mapping[str, Unused] = {**MEGATRON, **unused_flags(OWN, NOT_MODELLED)}
_SLOTS = re.compile(r"^\s*[^\s#]+\s+slots=(\d{1,4})\b", re.MULTILINE)


def reads(program: LaunchedProgram) -> bool:
    """Whether a program takes DeepSpeed's own arguments, as Megatron-DeepSpeed's and scripts of one's own do."""
    flags = {word.partition("=")[0] for word in program.arguments}
    own = any(f"--{name}" in flags for name in CONFIG_FLAGS)
    return own or (program.name == PROGRAM and "--deepspeed" in flags)


def known_fields(fields: Mapping[str, Any]) -> int:
    return is_config(fields)


def import_training(program: LaunchedProgram, names: TrainingNames) -> ImportedTraining:
    if program.fields:
        hint = "Import the command that reads it: deepspeed … --deepspeed_config FILE."
        message = "a DeepSpeed configuration names no model and no sequence length"
        raise InputError(message, where=program.place, hint=hint)
    options = TrainingOptions(read_flags(program.arguments), UNUSED)
    settings = _settings(options, names)
    shape = _shape(options)
    strategy = _degrees(options, settings.sequence)
    strategy = replace(strategy, dp=data_parallel(ranks_of(program, names), strategy, program.name))
    micro = _agreed(options, ("micro-batch-size", "batch-size", "batch_size"), settings.micro_batch, MICRO)
    batch = _agreed(options, ("global-batch-size",), settings.global_batch, "train_batch_size")
    micro = micro or _micro_batch(batch, strategy.dp * max(1, settings.accumulation))
    batch = batch or micro * strategy.dp * max(1, settings.accumulation)
    seq = options.whole("seq-length", "seq_length", "max_seq_len", "max_length", "seq-len")
    steps = options.whole("train-iters", default=0, least=0) or _samples(options, batch, seq)
    recipe = _recipe(options, settings, strategy, own=shape is not None)
    dtype = imported(_dtype(options, settings), program.environment)
    on_host = activations_offloaded(copies=BLOCKING) if options.flag("checkpoint-in-cpu") else {}
    techniques = {**settings.techniques, **on_host, **_saved(options)}
    techniques = only_recomputed(techniques, recipe.recompute, options)
    model = options.text("model", "model_name_or_path", "model-name-or-path") if shape is None else ""
    if shape is not None:
        note_dropout(options)
    return ImportedTraining(
        model=model,
        shape=shape,
        strategy=strategy,
        techniques=techniques,
        recipe=replace(recipe, micro_batch=micro),
        load=load_of(seq, batch, steps),
        dtype=dtype,
        ignored=(*options.ignored, *settings.ignored, *options.left()),
    )


def _agreed(options: TrainingOptions, flags: tuple[str, ...], configured: int, field: str) -> int:
    """What a command and its configuration say alike; 0 where neither says it."""
    said = options.whole(*flags, default=0, least=0)
    if said and configured:
        _same(said, configured, f"--{flags[0]}", field)
    return said or configured


def _same(said: int, configured: int, where: str, field: str) -> None:
    if said != configured:
        message = f"{said} is not the {configured} that {field} of its configuration says"
        raise InputError(message, where=where, hint="DeepSpeed takes the configuration's: give both the same.")


def _micro_batch(batch: int, parts: int) -> int:
    """Sequences that a rank takes at a time, where only all of a step are given: DeepSpeed divides them."""
    where = MICRO
    if not batch:
        raise InputError("nothing says how many sequences a rank takes at a time", where=where)
    if batch % parts:
        raise InputError(f"a batch of {batch} is not a multiple of {parts}, ranks by accumulated passes", where=where)
    return batch // parts


def _settings(options: TrainingOptions, names: TrainingNames) -> DeepSpeedSettings:
    given = options.take(*CONFIG_FLAGS)
    named = options.values.get("deepspeed")
    if given is None and isinstance(named, str):
        given = options.take("deepspeed")
    if given is None or given is True:
        return settings_of({})
    return settings_of(names.config(beside(given)))


def beside(path: Value) -> str:
    """A file's name, where only the shell knows its folder: it lies beside the script."""
    text = path if isinstance(path, str) else str(path)
    return text.rpartition("/")[2] if isinstance(path, Variable) and "$" not in text.rpartition("/")[2] else text


def ranks_of(program: LaunchedProgram, names: TrainingNames) -> int:
    """Processes of all nodes: as the launcher says, or as its file of hosts lists them."""
    if program.ranks or program.launcher != DEEPSPEED or "hostfile" not in program.options:
        return program.ranks
    try:
        text = names.text(beside(program.options["hostfile"]))
    except InputError:
        return 0
    slots = [int(found) for found in _SLOTS.findall(text)]
    each = program.per_node
    return len(slots) * each if each else sum(slots)


def _shape(options: TrainingOptions) -> ModelShape | None:
    if "num-layers" not in options.values:
        return None
    heads = options.whole("num-attention-heads", default=0)
    return ModelShape(
        layers=options.whole("num-layers"),
        hidden=options.whole("hidden-size"),
        heads=heads,
        kv_heads=options.whole("num-key-value-heads", default=heads, least=0),
        inner=options.whole("ffn-hidden-size", default=0),
        vocab=options.whole("vocab-size", "padded-vocab-size", default=0),
    )


def _degrees(options: TrainingOptions, sequence: int) -> Strategy:
    tp = options.whole("tensor-model-parallel-size", "model-parallel-size", default=1)
    pp = options.whole("pipeline-model-parallel-size", "pipe-parallel-size", default=1, least=0) or 1
    cp = options.whole("ds-sequence-parallel-size", default=sequence)
    if options.text("num-experts", default="1") not in ("1", "0"):
        raise InputError("mixtures of experts of Megatron-DeepSpeed are not modelled", where="--num-experts")
    if options.flag("enable-zbh1-pipeline"):
        options.unmodelled("--enable-zbh1-pipeline", "priced as 1f1b")
    return Strategy(tp=tp, pp=pp, cp=cp)


def _samples(options: TrainingOptions, batch: int, seq: int) -> int:
    samples = options.whole("train-samples", default=0, least=0)
    tokens = options.whole("train-tokens", default=0, least=0, most=MOST_TOKENS)
    return -(-samples // batch) if samples else -(-tokens // (batch * seq))


def _recipe(options: TrainingOptions, settings: DeepSpeedSettings, strategy: Strategy, *, own: bool) -> Recipe:
    """How a step is carried out; `own` where the program is Megatron-DeepSpeed, which brings its own optimizer."""
    stage = options.whole("zero-stage", default=settings.stage, least=0, most=MAX_ZERO)
    if settings.configured:
        _same(stage, settings.stage, "--zero-stage", "zero_optimization.stage")
    full = options.flag("checkpoint-activations")
    granularity = options.text("recompute-granularity")
    selective = granularity == "selective" or options.flag("recompute-activations")
    full = full or granularity == "full"
    layers = options.whole("checkpoint-num-layers", "recompute-num-layers", default=1)
    method = options.text("recompute-method", default="uniform")
    if full and method == "block":
        options.unmodelled(f"the first {layers} layers recomputed", "priced as every layer")
        layers = 1
    named = options.text("optimizer", default="adam" if own else "")
    if named not in ("", "adam"):
        raise InputError(f"the optimizer {named} is not modelled under DeepSpeed", where="--optimizer")
    if named and settings.optimizer not in ("", "adamw"):
        options.ignore(f"optimizer.type: {settings.optimizer}", "the program brings its own optimizer", affects=False)
    return Recipe(
        recompute=parse(f"{FULL}:{UNIFORM}={layers}").text if full else "selective" if selective else "none",
        zero=stage,
        hpz=settings.hpz if stage == 3 else 0,
        dp_shard=_shards(settings.shards, strategy) if stage == 3 else 0,
        optimizer="adamw" if named else settings.optimizer or "adamw",
        sequence_parallel=options.flag("sequence-parallel"),
        cp_comm="a2a" if strategy.cp > 1 else "p2p",
    )


def _shards(given: int, strategy: Strategy) -> int:
    """Data-parallel ranks of a group that shares states out; those that share a sequence are in it too."""
    shards, rest = divmod(given, strategy.cp)
    if rest or (shards and strategy.dp % shards):
        message = f"{given} is no divisor of the {strategy.dp * strategy.cp} ranks that hold the same weights"
        raise InputError(message, where="zero_optimization.mics_shard_size")
    return shards if shards < strategy.dp else 0


def _dtype(options: TrainingOptions, settings: DeepSpeedSettings) -> str:
    bf16, fp16 = options.flag("bf16"), options.flag("fp16")
    return "bf16" if bf16 else "fp16" if fp16 else settings.dtype or "fp32"


def _saved(options: TrainingOptions) -> Named:
    folder, every = options.text("save"), options.whole("save-interval", default=0, least=0)
    return saved(every) if folder and every else {}
