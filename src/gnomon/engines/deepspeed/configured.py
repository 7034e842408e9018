"""DeepSpeed's JSON configuration, of DeepSpeed alone or under the transformers Trainer, as parts of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gnomon.engines.command_line import unused_flags
from gnomon.engines.deepspeed.offload import offload_read
from gnomon.engines.training.expressed import Named
from gnomon.engines.training.imported import TrainingOptions, flattened
from gnomon.errors import InputError
from gnomon.spec.imported import IgnoredOption
from gnomon.spec.training import MAX_ZERO

FIELDS = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "zero_optimization", "bf16",
    "fp16", "optimizer", "scheduler", "gradient_clipping", "activation_checkpointing", "steps_per_print",
    "wall_clock_breakdown", "zero_allow_untested_optimizer", "prescale_gradients", "flops_profiler", "data_types",
    "communication_data_type", "tensorboard", "comms_logger", "aio", "tensor_parallel", "zero_force_ds_cpu_optimizer",
)  # fmt: skip
SECTIONS = ("zero_optimization", "bf16", "fp16", "optimizer", "activation_checkpointing", "aio")
"""Fields that hold fields."""
AUTO = "auto"
"""What the transformers Trainer fills in from its own arguments."""
NO_EFFECT = {
    "hyperparameters, which no time depends on": "optimizer.params* scheduler* gradient_clipping fp16* bf16*",
    "what is logged and measured": "steps_per_print wall_clock_breakdown flops_profiler* tensorboard* comms_logger* "
    "csv_monitor* wandb* memory_breakdown dump_state monitor_config*",
    "how checkpoints are laid out": "checkpoint* "
    "zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.load_from_fp32_weights "
    "zero_optimization.elastic_checkpoint",
    "buckets and buffers, which are priced as usual": "zero_optimization.reduce_bucket_size "
    "zero_optimization.allgather_bucket_size zero_optimization.stage3_prefetch_bucket_size "
    "zero_optimization.stage3_param_persistence_threshold zero_optimization.stage3_max_live_parameters "
    "zero_optimization.stage3_max_reuse_distance zero_optimization.sub_group_size "
    "zero_optimization.contiguous_gradients zero_optimization.reduce_scatter zero_optimization.allgather_partitions "
    "zero_optimization.round_robin_gradients zero_optimization.offload_optimizer* "
    "zero_optimization.offload_param* "
    "zero_optimization.ignore_unused_parameters aio*",
    "as it is priced": "zero_optimization.mics_hierarchical_params_gather zero_allow_untested_optimizer "
    "zero_force_ds_cpu_optimizer prescale_gradients "
    "gradient_predivide_factor data_types* activation_checkpointing* torch_autocast*",
}
NOT_MODELLED = {
    "compressed weights and gradients (ZeRO++)": "zero_optimization.zero_quantized_weights "
    "zero_optimization.zero_quantized_gradients "
    "zero_optimization.zero_quantized_nontrainable_weights",
    "tensor parallelism of DeepSpeed's own": "tensor_parallel*",
    "what is compressed or dropped": "compression_training* sparse_attention* progressive_layer_drop* "
    "curriculum_learning* data_efficiency*",
    "gradients that travel in another format": "communication_data_type",
    "compiled passes": "compile*",
    "training that goes on with fewer nodes": "elasticity* autotuning*",
}
UNUSED = unused_flags(NO_EFFECT, NOT_MODELLED)
OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "sgd": "sgd", "lion": "lion", "muon": "muon", "adafactor": "adafactor"}
"""`optimizer.type` in lower case, as a recipe calls it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedSettings:
    """What a configuration says; 0 and empty where it does not."""

    configured: bool
    """Whether there is a configuration."""
    stage: int
    micro_batch: int
    accumulation: int
    global_batch: int
    sequence: int
    """Ranks that a sequence lies on (`sequence_parallel_size`)."""
    hpz: int
    """Ranks that hold a second copy of the weights."""
    shards: int
    """Ranks that share states out, where not all do (MiCS)."""
    dtype: str
    optimizer: str
    """As a recipe calls it."""
    techniques: Named
    ignored: tuple[IgnoredOption, ...]


def is_config(fields: Mapping[str, Any]) -> int:
    """How many fields of a file are DeepSpeed's; 0 where it is none of its."""
    known = sum(name in FIELDS for name in fields)
    return known if isinstance(fields.get("zero_optimization"), Mapping) or known > 2 else 0


def settings_of(fields: Mapping[str, Any]) -> DeepSpeedSettings:
    """What a plan takes of a configuration."""
    for name in SECTIONS:
        if not isinstance(fields.get(name, {}), Mapping):
            raise InputError(f"'{fields[name]}' is not a section of settings", where=name, hint="Write {…}.")
    given = {name: value for name, value in flattened(fields).items() if value != AUTO}
    options = TrainingOptions(given, UNUSED, dashes="")
    stage = options.whole("zero_optimization.stage", default=0, least=0, most=MAX_ZERO)
    micro = options.whole("train_micro_batch_size_per_gpu", default=0, least=0)
    steps = options.whole("gradient_accumulation_steps", default=0, least=0)
    batch = options.whole("train_batch_size", default=0, least=0)
    bf16, fp16 = options.flag("bf16.enabled", "bfloat16.enabled"), options.flag("fp16.enabled")
    overlapped = options.flag("zero_optimization.overlap_comm", default=stage == 3)
    if overlapped:
        options.unmodelled("zero_optimization.overlap_comm: true", "priced with reductions after the backward pass")
    techniques = offload_read(options)
    return DeepSpeedSettings(
        configured=bool(fields),
        stage=stage,
        micro_batch=micro,
        accumulation=steps,
        global_batch=batch,
        sequence=options.whole("sequence_parallel_size", default=1),
        hpz=_several(options.whole("zero_optimization.zero_hpz_partition_size", default=1, least=0)),
        shards=max(0, options.whole("zero_optimization.mics_shard_size", default=0, least=-1)),
        dtype="bf16" if bf16 else "fp16" if fp16 else "",
        optimizer=_optimizer(options),
        techniques=techniques,
        ignored=(*options.ignored, *options.left()),
    )


def _several(ranks: int) -> int:
    """One rank has no second copy."""
    return ranks if ranks > 1 else 0


def _optimizer(options: TrainingOptions) -> str:
    named = options.text("optimizer.type")
    if named and named.lower() not in OPTIMIZERS:
        hint = f"These are: {', '.join(OPTIMIZERS)}."
        raise InputError(f"the optimizer {named} is not modelled", where=options.where("optimizer.type"), hint=hint)
    return OPTIMIZERS.get(named.lower(), "")
