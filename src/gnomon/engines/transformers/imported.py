"""A command of the transformers Trainer, by Accelerate, torchrun or DeepSpeed, read back as a training plan with its
configurations. Every option acts, is listed as ignored with the reason, or is refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gnomon.engines.command_line import Value, unused_flags
from gnomon.engines.deepspeed.configured import settings_of
from gnomon.engines.deepspeed.imported import beside, ranks_of
from gnomon.engines.deepspeed.offload import TIERS, is_place
from gnomon.engines.operations import Variable
from gnomon.engines.training.expressed import (
    ACTIVATIONS,
    COMPILE,
    NVME,
    Named,
    activations_offloaded,
    offloaded,
    saved,
    streamed,
)
from gnomon.engines.training.imported import TrainingOptions, data_parallel, flattened, load_of, read_flags
from gnomon.engines.training.launched import ACCELERATE, LaunchedProgram
from gnomon.engines.training.operations import ImportedTraining, TrainingNames
from gnomon.engines.transformers import adapters
from gnomon.engines.transformers.batches import batches_of
from gnomon.errors import InputError
from gnomon.spec import Recipe, Strategy
from gnomon.spec.imported import UNMODELLED, IgnoredOption
from gnomon.spec.training import MAX_ZERO

PROGRAM = "trl"
TRAINER_FLAGS = ("--per_device_train_batch_size", "--model_name_or_path", "--output_dir")
"""Arguments that tell a script of the Trainer from others."""
FIELDS = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "model_name_or_path", "output_dir", "learning_rate",
    "num_train_epochs", "max_steps", "gradient_checkpointing", "bf16", "fp16", "optim", "max_length", "max_seq_length",
    "lr_scheduler_type", "logging_steps", "save_steps", "dataset_name", "warmup_ratio", "report_to",
)  # fmt: skip
LENGTHS = ("sequence_length", "max_length", "max_seq_length", "block_size", "model_max_length", "cutoff_len")
"""Tokens of a sequence, as scripts call them."""
CONFIG_FILES = (".yaml", ".yml", ".json")
_OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw": "adamw", "sgd": "sgd",
    "paged_adamw_32bit": "adamw", "adafactor": "adafactor", "adamw_bnb_8bit": "adam8bit", "adamw_8bit": "adam8bit",
    "adamw_torch_8bit": "adam8bit", "paged_adamw_8bit": "adam8bit", "lion_32bit": "lion", "paged_lion_32bit": "lion",
}  # fmt: skip
_STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
_SHARE = re.compile(r"0?\.\d{1,12}")
_BY_NUMBER = {str(place): name for place, name in enumerate(_STRATEGIES, 1)}
NO_EFFECT = {
    "which tokens are trained on": "dataset* train_file validation_file data_path data_files text_column "
    "preprocessing_num_workers dataloader* streaming tokenizer* chat_template* eos_token data_args* "
    "remove_unused_columns eval_packing length_column_name sequences completion_only_loss assistant_only_loss "
    "overwrite_cache",
    "hyperparameters, which no time depends on": "learning_rate lr_scheduler* warmup* weight_decay adam_* "
    "max_grad_norm seed data_seed label_smoothing_factor neftune_noise_alpha optim_args beta",
    "adapters' scale and start, which no time depends on; of others nothing is trained": "lora* use_rslora bnb* "
    "adapter_weights use_dora use_bnb_nested_quant",
    "what is logged and measured": "logging* report_to run_name disable_tqdm include_num_input_tokens_seen log_level* "
    "project trackio*",
    "evaluation, which plans do not price": "eval* do_eval do_predict per_device_eval_batch_size prediction_loss_only "
    "load_best_model_at_end metric_for_best_model",
    "what is loaded before the first step, and how checkpoints are laid out": "resume_from_checkpoint save* "
    "overwrite_output_dir output_dir push_to_hub* hub* trust_remote_code model_revision config_name cache_dir "
    "use_fast_tokenizer token low_cpu_mem_usage",
    "nothing is sharded by FSDP without --fsdp": "fsdp_config*",
    "how long the run is": "num_train_epochs do_train num_epochs",
    "when and how processes meet and end": "ddp* local_rank full_determinism torch_empty_cache_steps",
    "as it is priced": "use_cache tf32 gradient_checkpointing_kwargs* bf16_full_eval average_tokens_across_devices "
    "fp16_opt_level half_precision_backend accelerator_config* "
    "use_reentrant",
}
NOT_MODELLED = {
    "other adapters than LoRA, QLoRA and DoRA of PEFT: priced as full training": "peft* load_in_4bit load_in_8bit",
    "weights that are frozen": "freeze* unfreeze*",
    "how modules are compiled: priced as by default": "torch_compile_backend torch_compile_mode",
    "kernels of Liger": "liger_kernel_config*",
}
UNUSED = unused_flags(NO_EFFECT, NOT_MODELLED)
LAUNCHER = unused_flags(
    {
        "when and how processes meet and end": "compute_environment debug machine_rank main_process_ip "
        "main_process_port main_training_function rdzv_backend same_network tpu* use_cpu gpu_ids num_machines "
        "enable_cpu_affinity downcast_bf16 command_file commands",
        "as it is priced": "fsdp_config* dynamo_config* deepspeed_config*",
    },
    {
        "fp8 under Accelerate": "fp8_config*",
        "Megatron-LM under Accelerate": "megatron_lm_config*",
        "parallelism beyond data parallelism": "parallelism_config*",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """What Accelerate, or the Trainer by itself, shards and where."""

    zero: int = 0
    recomputed: bool = False
    mixed: str = ""
    optimizer: str = ""
    """Of DeepSpeed's configuration, which goes before the Trainer's own."""
    accumulation: int = 0
    micro_batch: int = 0
    ranks: int = 0
    strategy: Strategy = field(default_factory=Strategy)
    techniques: Named = field(default_factory=dict)
    ignored: tuple[IgnoredOption, ...] = ()


def reads(program: LaunchedProgram) -> bool:
    """Whether a program is one that Accelerate starts, or has the Trainer's arguments."""
    flags = {word.partition("=")[0] for word in program.arguments}
    return program.launcher == ACCELERATE or program.name == PROGRAM or bool(flags & set(TRAINER_FLAGS))


def known_fields(fields: Mapping[str, Any]) -> int:
    """Fields of a file that are the Trainer's, or Accelerate's."""
    known = sum(name in FIELDS for name in fields)
    if "distributed_type" in fields and "compute_environment" in fields:
        return len(fields)
    return known if "per_device_train_batch_size" in fields else 0


def import_training(program: LaunchedProgram, names: TrainingNames) -> ImportedTraining:
    if "distributed_type" in program.fields:
        hint = "Import the command that reads it: accelerate launch --config_file FILE train.py …"
        message = "an Accelerate configuration names no model, no batch and no sequence length"
        raise InputError(message, where=program.place, hint=hint)
    options = TrainingOptions(_values(program, names), UNUSED, dashes="" if program.fields else "--")
    shared = _sharding(options, program, names)
    strategy = shared.strategy
    strategy = replace(strategy, dp=data_parallel(shared.ranks, strategy, program.name))
    micro = options.whole("per_device_train_batch_size", default=0, least=0) or shared.micro_batch or 8
    steps = options.whole("gradient_accumulation_steps", default=0, least=0) or shared.accumulation or 1
    batch = micro * steps * strategy.dp
    seq = options.whole(*LENGTHS)
    total = options.whole("max_steps", default=-1, least=-1)
    tuned, narrow = adapters.read(options, program.name == PROGRAM)
    recipe, dtype = _recipe(options, shared, narrow if tuned else None)
    kept, batches = _saved(options, total), batches_of(options)
    _notes(options)
    # Of TRL's trainers: pinned memory and a stream of its own.
    on_host = activations_offloaded() if options.flag("activation_offloading") else {}
    compiled: Named = {COMPILE: {}} if options.flag("torch_compile") else {}
    model = options.text("model_name_or_path", "model_name", "model_id", "model_config", "model")
    return ImportedTraining(
        model=model,
        strategy=strategy,
        techniques={**shared.techniques, **on_host, **kept, **tuned, **compiled},
        recipe=replace(recipe, micro_batch=micro),
        load=load_of(seq, batch, max(0, total)),
        batches=batches,
        dtype=dtype,
        ignored=(*options.ignored, *shared.ignored, *options.left()),
    )


def _values(program: LaunchedProgram, names: TrainingNames) -> dict[str, Value]:
    """Arguments of a file, and above them those of the command."""
    if program.fields:
        return flattened(program.fields)
    words = list(program.arguments)
    places: list[str] = []
    while words and not words[0].startswith("-") and not isinstance(words[0], Variable):
        places.append(words.pop(0))
    given = {name.replace("-", "_"): value for name, value in read_flags(words).items()}
    named = given.pop("config", None)
    files = [place for place in places if place.endswith(CONFIG_FILES)]
    files += [str(named)] if named and named is not True else []
    base: dict[str, Value] = {}
    for file in files:
        base |= flattened(names.config(beside(file)))
    return base | given


def _sharding(options: TrainingOptions, program: LaunchedProgram, names: TrainingNames) -> Sharding:
    ranks = ranks_of(program, names)
    named = program.options.get("config-file") or options.text("accelerate_config")
    given = {name.replace("-", "_"): value for name, value in program.options.items()}
    processes = options.whole("num_processes", default=0, least=0)  # which `trl` hands on to Accelerate
    ranks = processes or ranks
    found = Sharding(ranks=ranks)
    if program.launcher == ACCELERATE or named:
        base = flattened(names.config(beside(named))) if named else {}
        found = _accelerate(base, given, ranks, names)
    config = options.take("deepspeed")
    if config is not None and config is not True:
        return _laid_over(found, _deepspeed_file(names, str(config)))
    return _laid_over(found, _trainer_fsdp(options, names)) if "fsdp" in options.values else found


def _laid_over(launched: Sharding, own: Sharding) -> Sharding:
    """What the Trainer shards by itself, on the processes and with the precision of its launcher."""
    return replace(
        own,
        ranks=launched.ranks,
        strategy=launched.strategy,
        mixed=own.mixed or launched.mixed,
        accumulation=own.accumulation or launched.accumulation,
        ignored=(*launched.ignored, *own.ignored),
    )


def _deepspeed_file(names: TrainingNames, path: str) -> Sharding:
    found = settings_of(names.config(beside(path)))
    whys = {
        f"MiCS over {found.shards} ranks": found.shards and "priced as sharded over all ranks",
        "sequence parallelism of DeepSpeed": found.sequence > 1 and "the Trainer has none",
    }
    over = (IgnoredOption(option=name, why=f"{UNMODELLED}{why}", affects=True) for name, why in whys.items() if why)
    return Sharding(
        zero=found.stage,
        mixed=found.dtype,
        optimizer=found.optimizer,
        accumulation=found.accumulation,
        micro_batch=found.micro_batch,
        # The Trainer's checkpointing is PyTorch's, which no option of DeepSpeed's concerns.
        techniques={name: values for name, values in found.techniques.items() if name != ACTIVATIONS},
        ignored=(*found.ignored, *over),
    )


def _trainer_fsdp(options: TrainingOptions, names: TrainingNames) -> Sharding:
    """`--fsdp "full_shard auto_wrap"`: sharding that the Trainer asks for by itself, with a file of more or none."""
    on = options.values.get("fsdp") is True
    words = options.text("fsdp", default="full_shard" if on else "").lower().split()
    strategy = next((word.upper() for word in words if word.upper() in _STRATEGIES), "")
    if not strategy and not {"true", "1"} & set(words):
        return Sharding()
    before = "fsdp_config."
    fields = {name: options.take(name) for name in [*options.values] if name.startswith(before)}
    if file := options.text("fsdp_config"):
        fields |= flattened(_in_place(file) if file.startswith("{") else names.config(beside(file)), before)
    given = {name: value for name, value in fields.items() if value is not None}
    own = TrainingOptions(given | ({f"{before}sharding_strategy": strategy} if strategy else {}), LAUNCHER, dashes="")
    found = _fsdp(own)
    if "offload" in words and found.zero >= 2:
        found = replace(found, techniques=_all_offloaded())
    return replace(found, ignored=(*own.ignored, *own.left()))


def _in_place(text: str) -> Mapping[str, Any]:
    """Fields that a command gives as JSON instead of a file's name."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    raise InputError(f"'{text}' is not JSON", where="--fsdp_config")


_MIXED = ("no", "bf16", "fp16", "fp8")


def _accelerate(base: Mapping[str, Value], flags: Mapping[str, str], ranks: int, names: TrainingNames) -> Sharding:
    """Accelerate's configuration, with the launcher's own options above it."""
    for name in ("fsdp_config", "deepspeed_config"):
        if name in base:
            raise InputError(f"'{base[name]}' is not a section of settings", where=name)
    options = TrainingOptions(dict(base), LAUNCHER, dashes="")
    for name, value in flags.items():
        if name not in ("config_file", "module"):
            options.values[name] = value or True
    kind = options.text("distributed_type", default="MULTI_GPU")
    processes = options.whole("num_processes", default=0, least=0)
    kind = "FSDP" if options.flag("use_fsdp") else "DEEPSPEED" if options.flag("use_deepspeed") else kind
    options.take("multi_gpu")
    mixed = options.text("mixed_precision", default="no").lower()
    if mixed not in _MIXED:
        raise InputError(f"'{mixed}' is not known", where="mixed_precision", hint=f"Use {' or '.join(_MIXED)}.")
    backend = options.text("dynamo_config.dynamo_backend", "dynamo_backend", default="no")
    if backend.lower() != "no":
        options.unmodelled(f"dynamo_backend: {backend}", "compiled modules: priced as eager ones")
    found = Sharding()
    if kind == "DEEPSPEED":
        found = _deepspeed(options, names)
    elif kind == "FSDP":
        found = _fsdp(options)
    elif kind not in ("MULTI_GPU", "NO", "MULTI_XPU"):
        raise InputError(f"{kind} under Accelerate is not modelled", where="distributed_type")
    named = "parallelism_config.parallelism_config_{}_size"
    sizes = {name: options.whole(named.format(name), default=1) for name in ("tp", "cp")}
    return replace(
        found,
        mixed=found.mixed if mixed == "no" else mixed,
        ranks=processes or ranks,
        strategy=Strategy(tp=sizes["tp"], cp=sizes["cp"]),
        ignored=(*found.ignored, *options.ignored, *options.left()),
    )


def _deepspeed(options: TrainingOptions, names: TrainingNames) -> Sharding:
    file = options.text("deepspeed_config.deepspeed_config_file", "deepspeed_config_file")
    if file:
        return _deepspeed_file(names, file)
    stage = options.whole("deepspeed_config.zero_stage", "zero_stage", default=2, least=0, most=MAX_ZERO)
    steps = options.text("deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps")
    techniques: Named = {}
    for name, what in (("offload_optimizer_device", offloaded(1.0)), ("offload_param_device", streamed())):
        device = options.text(f"deepspeed_config.{name}", name, default="none")
        for technique, values in what.items() if is_place(device, name) else ():
            techniques[technique] = {**values, **({"tier": NVME} if TIERS[device] == NVME else {})}
    return Sharding(
        zero=stage, accumulation=int(steps) if re.fullmatch(r"\d{1,6}", steps) else 0, techniques=techniques
    )


def _of_fsdp(name: str) -> tuple[str, str, str]:
    """A field of FSDP in Accelerate's file, among its options, and in the Trainer's."""
    return f"fsdp_config.fsdp_{name}", f"fsdp_{name}", f"fsdp_config.{name}"


def _fsdp(options: TrainingOptions) -> Sharding:
    """FSDP2 says whether weights are sharded again after the forward pass, FSDP1 names a strategy."""
    version = options.whole(*_of_fsdp("version"), default=1, most=2)
    resharded = options.text(*_of_fsdp("reshard_after_forward"), default="true").lower()
    if version == 2 and resharded not in ("true", "false"):
        raise InputError(f"'{resharded}' is neither true nor false", where="fsdp_reshard_after_forward")
    named = options.text(*_of_fsdp("sharding_strategy"), default="FULL_SHARD")
    again = options.flag(*_of_fsdp("activation_checkpointing"))
    away = _all_offloaded() if options.flag(*_of_fsdp("offload_params")) else {}
    if version == 2:
        return Sharding(zero=3 if resharded == "true" else 2, recomputed=again, techniques=away)
    named = _BY_NUMBER.get(named, named)
    if named not in _STRATEGIES:
        raise InputError(f"'{named}' is not known", where="fsdp_sharding_strategy")
    if named.startswith("HYBRID"):
        options.unmodelled(f"fsdp_sharding_strategy: {named}", "priced as sharded over all ranks")
    return Sharding(zero=_STRATEGIES[named], recomputed=again, techniques=away if _STRATEGIES[named] >= 2 else {})


def _all_offloaded() -> Named:
    """FSDP's offload: weights, gradients and states, which the host updates."""
    return {**offloaded(1.0), **streamed()}


def _recipe(options: TrainingOptions, shared: Sharding, narrow: bool | None) -> tuple[Recipe, str]:
    """`narrow` says whether adapters are in 16 bits; None where the network itself is trained."""
    named = options.text("optim", default="adamw_torch_fused")
    if named not in _OPTIMIZERS:
        raise InputError(f"the optimizer {named} is not modelled", where=options.where("optim"))
    optimizer = shared.optimizer or _OPTIMIZERS[named]
    if not shared.optimizer and named.startswith("paged"):
        options.unmodelled(options.told("optim", named), "states in memory that the host shares: priced as on the chip")
    bf16, fp16 = options.flag("bf16"), options.flag("fp16")
    kept = _kept(options)
    dtype = "bf16" if bf16 else "fp16" if fp16 else shared.mixed or ("bf16" if kept == "bfloat16" else "fp32")
    if narrow is not None and kept != "bfloat16":
        options.unmodelled(options.told("dtype", kept), "frozen weights in four bytes: priced in 16 bits")
    if (kept == "bfloat16" if narrow is None else narrow) and optimizer == "adamw":
        optimizer = "adamw-bf16"
    again = options.flag("gradient_checkpointing") or shared.recomputed
    return Recipe(recompute="full" if again else "none", zero=shared.zero, optimizer=optimizer), dtype


def _kept(options: TrainingOptions) -> str:
    """The format that weights are kept in."""
    text = options.text("weights", "torch_dtype", "dtype", "model_dtype", default="float32")
    if text in ("auto", "bf16"):
        return "bfloat16"
    return text


def _notes(options: TrainingOptions) -> None:
    """Kernels other than those of eager modules with PyTorch's scaled-dot-product attention, which are priced."""
    attention = options.text("attn_implementation", default="sdpa")
    if attention != "sdpa":
        options.unmodelled(options.told("attn_implementation", attention), "priced with sdpa")
    if options.flag("use_liger_kernel"):
        options.unmodelled(options.told("use_liger_kernel", True), "kernels of Liger: priced as the modules' own")


def _saved(options: TrainingOptions, total: int) -> Named:
    """Steps from one checkpoint to the next; below 1 they are a share of all."""
    kind = options.text("save_strategy", default="steps")
    given = options.values.get("save_steps")
    if isinstance(given, str) and _SHARE.fullmatch(given):
        share = options.share("save_steps", default=0.0)
        every = math.ceil(share * max(0, total))
        if share and not every and kind == "steps":
            options.unmodelled(options.told("save_steps", given), "nothing says of how many steps: priced without")
    else:
        every = options.whole("save_steps", default=0, least=0)
    return saved(every) if every and kind == "steps" else {}
