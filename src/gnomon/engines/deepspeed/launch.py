"""A training plan as DeepSpeed's configuration and a command of Megatron-DeepSpeed, and what they cannot express."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from gnomon.engines.deepspeed.engine import VERSIONS
from gnomon.engines.deepspeed.offload import EXPRESSED as OFFLOADS
from gnomon.engines.deepspeed.offload import (
    activations_unsaid,
    aio_fields,
    check_offload,
    checkpoints_on_host,
    offload_unsaid,
    zero_fields,
)
from gnomon.engines.deepspeed.options import COMMIT, CONFIG, PROGRAM, VERSION
from gnomon.engines.megatron.options import Value, words
from gnomon.engines.training.expressed import CHECKPOINTS, Saving, StateOffload
from gnomon.engines.training.job import check_equal_stages, check_experts, check_job
from gnomon.engines.training.launch import (
    LEAST_RATE,
    RATE,
    common_not_expressed,
    headline,
    script,
    sequences_not_expressed,
    steps_of,
    torchrun,
)
from gnomon.engines.training.rotary import BASE, rotary
from gnomon.engines.training.wide import exported
from gnomon.errors import InputError
from gnomon.spec import AttentionMixer, DenseFfn, Plan
from gnomon.spec.recompute import FULL, OP, UNIFORM, parse
from gnomon.spec.training_job import TrainingJob

NAME = "deepspeed"
SAVED = "checkpoints"
VOCAB_MULTIPLE = 128
_DTYPES = {"bf16": "--bf16", "fp16": "--fp16", "fp32": "", "tf32": ""}
_NOTE = (
    f"In a folder of Megatron-DeepSpeed {COMMIT}, or with MEGATRON_DEEPSPEED_PATH naming one; DATA_PATH names the "
    "tokens. Further options may follow."
)
_HERE = 'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"'


def command(job: TrainingJob) -> list[str]:
    """What run.sh starts on one node, except for its data."""
    lines = words(options(job))
    config = ["--deepspeed", "--deepspeed_config", CONFIG]
    return [*torchrun(job), PROGRAM, *config, *(word for line in lines for word in line)]


def run_script(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> str:
    """`run.sh`, which every node starts beside the configuration."""
    config = f'--deepspeed --deepspeed_config "$here/{CONFIG}"'
    data = '--data-path "${DATA_PATH:?not set, it names the tokens to train on}"'
    return script(
        job,
        headline(plan, f"DeepSpeed {VERSION}"),
        setup=[_HERE, *exported(job.dtype, job.pool.chip)],
        program=f'"${{MEGATRON_DEEPSPEED_PATH:-.}}/{PROGRAM}" {config} {data}',
        arguments=words(options(job)),
        notes=(*notes, _NOTE),
    )


EXPRESSED_SETTINGS = (
    "dp_shard",
    "hpz",
)
"""Settings that most plans leave alone, and its configuration has."""


def config_text(job: TrainingJob) -> str:
    """`ds_config.json`."""
    check(job)
    check_offload(job)
    micro, strategy = job.recipe.micro_batch, job.strategy
    config: dict[str, Any] = {
        "train_batch_size": job.load.global_batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": job.load.global_batch // (micro * strategy.dp),
        "gradient_clipping": 1.0,
        "steps_per_print": 1,
        "wall_clock_breakdown": False,
        "zero_optimization": _zero(job),
        "bf16": {"enabled": job.dtype == "bf16"},
        "fp16": {"enabled": job.dtype == "fp16"},
    }
    if job.dtype == "bf16":
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    if parse(job.recipe.recompute).each == FULL:
        kept = {"partition_activations": False, "cpu_checkpointing": checkpoints_on_host(job)}
        config["activation_checkpointing"] = kept
    return json.dumps(config | aio_fields(job), indent=2) + "\n"


def _zero(job: TrainingJob) -> dict[str, Any]:
    stage = job.recipe.zero
    found: dict[str, Any] = {"stage": stage}
    if stage == 3 and job.recipe.hpz:
        found["zero_hpz_partition_size"] = job.recipe.hpz
    if stage:
        found |= {"overlap_comm": False, "reduce_scatter": True, "contiguous_gradients": True}
    return found | zero_fields(job)


def options(job: TrainingJob) -> dict[str, Value]:
    """Every option of Megatron-DeepSpeed and its value, in the order they are written."""
    check(job)
    check_offload(job)
    return _network(job) | _parallel(job) | _step(job) | _beside(job)


def check(job: TrainingJob) -> None:
    """Raise InputError where DeepSpeed would not train the job."""
    check_job(job)
    check_experts(job.model, job.strategy, job.recipe)
    check_equal_stages(job.model, job.strategy)
    strategy, recipe = job.strategy, job.recipe
    dense = all(isinstance(b.mixer, AttentionMixer) and isinstance(b.ffn, DenseFfn) for b in job.model.blocks)
    if not dense:
        message = f"Megatron-DeepSpeed has dense layers of softmax attention, and {job.model.name} has others"
        raise InputError(message, where="model", hint="Export it to megatron.")
    if job.dtype not in _DTYPES:
        hint = f"Use {', '.join(_DTYPES)}."
        raise InputError(f"DeepSpeed does not train in {job.dtype}", where="dtype", hint=hint)
    if recipe.optimizer != "adamw":
        message = f"Megatron-DeepSpeed trains with AdamW, not with {recipe.optimizer}"
        raise InputError(message, where="engine.settings.optimizer", hint="Use adamw.")
    choice = parse(recipe.recompute)
    if choice.modules or choice.way == OP or choice.layers not in ("", UNIFORM):
        message = f"Megatron-DeepSpeed does not recompute by {choice.text}"
        raise InputError(message, where="engine.settings.recompute", hint="Use full or full:uniform=N.")
    if strategy.pp > 1 and recipe.schedule != "1f1b":
        message = f"DeepSpeed's pipeline has no schedule {recipe.schedule}"
        raise InputError(message, where="engine.settings.schedule", hint="Use 1f1b.")
    if recipe.dp_shard and recipe.zero and recipe.dp_shard < strategy.dp:
        message = f"DeepSpeed {VERSION} shards over all ranks: MiCS has been removed from it"
        raise InputError(message, where="engine.settings.dp_shard", hint="Use 0, or export to torchtitan or megatron.")
    if strategy.pp > 1 and recipe.zero > 1:
        message = f"DeepSpeed does not combine ZeRO {recipe.zero} with a pipeline"
        raise InputError(message, where="engine.settings.zero", hint="Use 0 or 1, or a pp of 1.")
    cut = strategy.tp > 1 and recipe.sequence_parallel
    if strategy.cp > 1 and (recipe.cp_comm != "a2a" or strategy.pp > 1 or cut):
        message = "DeepSpeed's sequence parallelism trades tokens for heads, without a pipeline or sequence_parallel"
        raise InputError(message, where="strategy.cp", hint="Use 1, or cp_comm a2a with a pp of 1.")


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    """What of a job's plan DeepSpeed's configuration and Megatron-DeepSpeed's options cannot express."""
    saving = Saving.of(job)
    kept = "" if saving else ", and saves nothing"
    own = "data, tokenizer and a learning rate of your own"
    missing = [f"{own}: run.sh reads DATA_PATH, with a learning rate of {RATE:g} decaying to {LEAST_RATE:g}{kept}"]
    missing += _unlike(job)
    if plan.engine.name == NAME and plan.engine.version not in ("", VERSIONS[-1]):
        missing.append(f"DeepSpeed {plan.engine.version}: the files are for {VERSION}")
    if saving.beside:
        missing.append("asynchronous checkpoints: Megatron-DeepSpeed saves them while training waits")
    missing += [*offload_unsaid(job), *activations_unsaid(job), *sequences_not_expressed(job)]
    return missing + common_not_expressed(job, plan, NAME, EXPRESSED_SETTINGS)


def _unlike(job: TrainingJob) -> list[str]:
    """What of the model the options do not say."""
    model, block = job.model, job.model.blocks[0]
    mixer, missing = block.attention, []
    multiple = VOCAB_MULTIPLE * job.strategy.tp
    padded = math.ceil(model.vocab / multiple) * multiple
    if padded != model.vocab:
        missing.append(f"a vocabulary of {model.vocab:,} tokens: Megatron-DeepSpeed pads it to {padded:,}")
    if not _all_biases(job) and (mixer.qkv_bias or mixer.out_bias or block.feed_forward.bias):
        missing.append("biases in some linear layers only: Megatron-DeepSpeed has them in all or in none")
    if mixer.qk_norm:
        missing.append("norms of queries and keys")
    if any(b.mixer != block.mixer or b.parallel or b.norm_after for b in model.blocks):
        missing.append("layers that differ, run both halves at once or norm after them: all are equal, norms first")
    window = mixer.window
    if window is not None and window < job.load.seq:
        missing.append(f"a sliding window of {window} tokens: all of them attend to everything")
    return missing + ([] if model.learned_positions else rotary(job.config).missing())


def _all_biases(job: TrainingJob) -> bool:
    mixer = job.model.blocks[0].attention
    return mixer.qkv_bias and mixer.out_bias and job.model.blocks[0].feed_forward.bias


def _network(job: TrainingJob) -> dict[str, Value]:
    model, block = job.model, job.model.blocks[0]
    mixer, ffn, learned = block.attention, block.feed_forward, job.model.learned_positions
    base = rotary(job.config).whole_base or BASE
    return {
        "--num-layers": model.layers,
        "--hidden-size": model.hidden,
        "--ffn-hidden-size": ffn.inner,
        "--num-attention-heads": mixer.heads,
        "--num-key-value-heads": mixer.kv_heads,
        "--kv-channels": mixer.head_dim,
        "--swiglu": ffn.gated,
        "--normalization": "layernorm" if model.norm_bias else "rmsnorm",
        "--use-rotary-position-embeddings": not learned,
        "--rotary-position-embeddings-theta": False if learned else base,
        "--no-position-embedding": not learned,
        "--max-position-embeddings": learned or max(model.max_context, job.load.seq),
        "--disable-bias-linear": not _all_biases(job),
        "--untie-embeddings-and-output-weights": not model.tied_embeddings,
        "--attention-dropout": 0.0,
        "--hidden-dropout": 0.0,
        "--vocab-size": model.vocab,
        "--make-vocab-size-divisible-by": VOCAB_MULTIPLE,
        "--tokenizer-type": "NullTokenizer",
    }


def _parallel(job: TrainingJob) -> dict[str, Value]:
    strategy = job.strategy
    return {
        "--tensor-model-parallel-size": strategy.tp,
        "--sequence-parallel": strategy.tp > 1 and job.recipe.sequence_parallel,
        "--pipeline-model-parallel-size": strategy.pp,
        "--no-pipeline-parallel": strategy.pp == 1,
        "--ds-sequence-parallel-size": strategy.cp if strategy.cp > 1 else False,
        "--zero-stage": job.recipe.zero,
    }


def _step(job: TrainingJob) -> dict[str, Value]:
    choice = parse(job.recipe.recompute)
    full = choice.each == FULL
    values: dict[str, Value] = {
        "--micro-batch-size": job.recipe.micro_batch,
        "--global-batch-size": job.load.global_batch,
        "--seq-length": job.load.seq,
        "--train-iters": steps_of(job),
        "--checkpoint-activations": full,
        "--deepspeed-activation-checkpointing": full,
        "--checkpoint-num-layers": choice.count if choice.layers else False,
        "--checkpoint-in-cpu": checkpoints_on_host(job),
        "--recompute-granularity": "selective" if job.recipe.recompute == "selective" else False,
        "--use-flash-attn-v2": True,
        "--cpu-optimizer": bool(StateOffload.of(job)),
    }
    return values | ({_DTYPES[job.dtype]: True} if _DTYPES[job.dtype] else {})


def _beside(job: TrainingJob) -> dict[str, Value]:
    """What a plan does not set and time does not depend on, and checkpoints."""
    saving = Saving.of(job)
    saved: dict[str, Value] = {"--save": SAVED, "--save-interval": saving.every} if saving else {}
    return {
        "--adam-beta1": 0.9,
        "--adam-beta2": 0.95,
        "--weight-decay": 0.1,
        "--clip-grad": 1.0,
        "--lr": RATE,
        "--min-lr": LEAST_RATE,
        "--lr-decay-style": "cosine",
        "--lr-warmup-fraction": 0.01,
        "--eval-iters": 0,
        "--eval-interval": 1000,
        "--log-interval": 1,
        **saved,
    }


EXPRESSED = (*OFFLOADS, CHECKPOINTS)
