"""A training plan as arguments of the transformers Trainer under Accelerate, and what they cannot express."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.engines.deepspeed.offload import FOLDER, check_offload, device_of, offload_unsaid
from gnomon.engines.shell import comment
from gnomon.engines.training.expressed import (
    CHECKPOINTS,
    COMPILE,
    NVME,
    OFFLOAD,
    PARAMETERS,
    ParameterOffload,
    Saving,
    StateOffload,
)
from gnomon.engines.training.job import check_job
from gnomon.engines.training.launch import (
    BESIDE,
    RATE,
    Launcher,
    common_not_expressed,
    headline,
    nodes,
    script,
    steps_of,
)
from gnomon.engines.transformers import adapters, trainer_rows
from gnomon.engines.transformers.options import (
    ACCELERATE,
    CONFIG,
    LAUNCHED,
    OPTIMIZERS,
    SCRIPT,
    TRAINING,
    VERSION,
    WEIGHTS,
)
from gnomon.engines.transformers.trainer import TEXT
from gnomon.engines.transformers.trainer_rows import ROWS, rows_text
from gnomon.errors import InputError
from gnomon.spec import Plan
from gnomon.spec.recompute import FULL, NONE
from gnomon.spec.training import BALANCED, BFD, FFD, GROUP_BY_LENGTH
from gnomon.spec.training_job import TrainingJob

NAME = "transformers"
EXPRESSED = (OFFLOAD, PARAMETERS, CHECKPOINTS, COMPILE, *adapters.TECHNIQUES)
_PRECISION = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
_NOTE = f"transformers {VERSION} and Accelerate {ACCELERATE}. Further options may follow."
SAVED = "checkpoints"


def command(job: TrainingJob) -> list[str]:
    """What run.sh starts on one node, in its own folder."""
    check(job)
    return [*_launcher().words, SCRIPT, TRAINING]


def _launcher() -> Launcher:
    return Launcher(
        words=("accelerate", "launch", "--config_file", LAUNCHED),
        node_rank="--machine_rank",
        address="--main_process_ip",
        port="--main_process_port",
    )


def files(job: TrainingJob, plan: Plan, notes: Sequence[str]) -> dict[str, str]:
    """`run.sh`, both configurations, the script and the network's config.json."""
    check(job)
    check_offload(job, shares=False)
    title = headline(plan, f"transformers {VERSION}")
    head = [comment(title), *map(comment, notes)]
    run = script(
        job, title, setup=[BESIDE], program=SCRIPT, arguments=[[TRAINING]], notes=(*notes, _NOTE), launcher=_launcher()
    )
    network = {CONFIG: json.dumps(dict(job.config), indent=2) + "\n"} if job.config else {}
    return {
        "run.sh": run,
        LAUNCHED: _yaml(head, _accelerate(job)),
        TRAINING: _yaml(head, _arguments(job)),
        SCRIPT: adapters.script(job, TEXT if job.load.sequences is None else trainer_rows.TEXT),
        **({} if job.load.sequences is None else {ROWS: rows_text(job)}),
        **network,
    }


def _yaml(head: Sequence[str], fields: Mapping[str, Any]) -> str:
    import yaml

    return "\n".join(head) + "\n" + yaml.safe_dump(dict(fields), sort_keys=False)


def check(job: TrainingJob) -> None:
    """Raise InputError where the Trainer would not train the job."""
    check_job(job)
    for name in ("tp", "pp", "cp", "ep"):
        if getattr(job.strategy, name) > 1:
            message = f"{getattr(job.strategy, name)} is not 1: these files train with data parallelism alone"
            raise InputError(message, where=f"strategy.{name}", hint="Use 1, or export it to megatron or torchtitan.")
    if job.dtype not in _PRECISION:
        hint = f"Use {', '.join(_PRECISION)}."
        raise InputError(f"the Trainer's files do not train in {job.dtype}", where="dtype", hint=hint)
    if job.recipe.optimizer not in OPTIMIZERS:
        hint = f"It has {', '.join(OPTIMIZERS)}."
        message = f"the Trainer has no optimizer {job.recipe.optimizer}"
        raise InputError(message, where="engine.settings.optimizer", hint=hint)
    if job.recipe.recompute not in (NONE, FULL):
        message = "gradient checkpointing recomputes whole layers under transformers"
        raise InputError(message, where="engine.settings.recompute", hint="Use full or none.")
    if job.recipe.optimizer in WEIGHTS and job.dtype != "bf16":
        message = f"{job.recipe.optimizer} keeps weights in bf16, and the plan is in {job.dtype}"
        raise InputError(message, where="engine.settings.optimizer", hint="Use adamw.")
    if adapters.asked(job) and job.dtype == "fp32":
        message = "these files keep frozen weights in bf16, and the plan is in fp32"
        raise InputError(message, where="dtype", hint="Use bf16.")


def not_expressed(job: TrainingJob, plan: Plan) -> list[str]:
    """What of a job's plan the Trainer's arguments cannot express."""
    saving = Saving.of(job)
    saved = "" if saving else ", and saves nothing"
    own = "data, weights and a learning rate of your own"
    missing = [f"{own}: {SCRIPT} trains random weights on random tokens at {RATE:g}{saved}"]
    if not job.config:
        missing.append(f"the network's {CONFIG}, which nothing here has")
    if saving.beside:
        missing.append("asynchronous checkpoints: the Trainer saves them while training waits")
    return missing + offload_unsaid(job) + _data_not_expressed(job) + common_not_expressed(job, plan, NAME)


def _data_not_expressed(job: TrainingJob) -> list[str]:
    """Of sequences that differ in length: the script draws them itself."""
    sequences = job.load.sequences
    if sequences is None:
        return []
    found = []
    if sequences.packing == FFD or (sequences.packs and sequences.document_masking != (sequences.packing == BFD)):
        found.append(f"{sequences.packing} packing with{'' if sequences.document_masking else 'out'} document masking")
    if sequences.sampling == BALANCED:
        own = "train_sampling_strategy batch_rebalance, which gives micro-batches unequal numbers of sequences"
        found.append(f"{BALANCED} sampling: a sampler of your own, or {own}")
    return found


def _mixed(job: TrainingJob) -> str:
    """The format that autocast computes in; weights that are kept in bf16 need none."""
    return "no" if job.recipe.optimizer in WEIGHTS else _PRECISION[job.dtype]


def _accelerate(job: TrainingJob) -> dict[str, Any]:
    """Accelerate's configuration: DDP, DeepSpeed for ZeRO 1 and offloading, FSDP2 for sharded gradients and weights."""
    count, per_node = nodes(job)
    fields: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if count * per_node > 1 else "NO",
        "mixed_precision": _mixed(job),
        "num_machines": count,
        "num_processes": count * per_node,
        "machine_rank": 0,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
    }
    stage = job.recipe.zero
    if stage == 1 or StateOffload.of(job) or ParameterOffload.of(job):
        return fields | {"distributed_type": "DEEPSPEED", "deepspeed_config": _deepspeed(job)}
    if stage >= 2:
        return fields | {"distributed_type": "FSDP", "fsdp_config": _fsdp(stage)}
    return fields


def _deepspeed(job: TrainingJob) -> dict[str, Any]:
    places: dict[str, StateOffload | ParameterOffload]
    places = {"optimizer": StateOffload.of(job), "param": ParameterOffload.of(job)}
    devices = {f"offload_{name}_device": device_of(offload) for name, offload in places.items()}
    disks = {f"offload_{name}_nvme_path": FOLDER for name, offload in places.items() if offload.tier == NVME}
    return {
        "zero_stage": job.recipe.zero,
        "gradient_accumulation_steps": _accumulation(job),
        "gradient_clipping": 1.0,
        **devices,
        **disks,
        "zero3_init_flag": False,
        "zero3_save_16bit_model": False,
    }


def _fsdp(stage: int) -> dict[str, Any]:
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": stage == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_offload_params": False,
        "fsdp_activation_checkpointing": False,
    }


def _accumulation(job: TrainingJob) -> int:
    return job.load.global_batch // (job.recipe.micro_batch * job.strategy.dp)


def _arguments(job: TrainingJob) -> dict[str, Any]:
    """Arguments of the Trainer, and those of the script before them."""
    mixed, saving = _mixed(job), Saving.of(job)
    return {
        "model_config": ".",
        "sequence_length": job.load.seq,
        **_sequences(job),
        "weights": "bfloat16" if adapters.asked(job) else WEIGHTS.get(job.recipe.optimizer, "float32"),
        **adapters.arguments(job, narrow=job.recipe.optimizer in WEIGHTS),
        "output_dir": SAVED,
        "per_device_train_batch_size": job.recipe.micro_batch,
        "gradient_accumulation_steps": _accumulation(job),
        "max_steps": steps_of(job),
        "bf16": mixed == "bf16",
        "fp16": mixed == "fp16",
        **({"torch_compile": True} if COMPILE in job.techniques else {}),
        "gradient_checkpointing": job.recipe.recompute == FULL,
        "optim": OPTIMIZERS[job.recipe.optimizer],
        "learning_rate": RATE,
        "lr_scheduler_type": "cosine",
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "logging_steps": 1,
        "report_to": "none",
        "save_strategy": "steps" if saving else "no",
        **({"save_steps": saving.every} if saving else {}),
        "dataloader_drop_last": True,
        **_sampling(job),
    }


def _sequences(job: TrainingJob) -> dict[str, Any]:
    """Of the script: sequences that differ in length, and what becomes of them."""
    sequences = job.load.sequences
    if sequences is None:
        return {}
    drawn = {"lengths": sequences.lengths.text, "lengths_seed": sequences.seed}
    return {"sequences": ROWS, "packing": sequences.packing, **drawn}


def _sampling(job: TrainingJob) -> dict[str, Any]:
    if job.load.sequences is None:
        return {}
    grouped = job.load.sequences.sampling == GROUP_BY_LENGTH
    return {"train_sampling_strategy": "group_by_length" if grouped else "random", "remove_unused_columns": False}
