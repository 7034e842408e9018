"""What DeepSpeed keeps on the host and its disks: fields of its configuration, written and read back."""

from __future__ import annotations

from typing import Any

from gnomon.engines.training.expressed import (
    ACTIVATIONS,
    BLOCKING,
    NVME,
    OFFLOAD,
    PARAMETERS,
    ActivationOffload,
    Named,
    ParameterOffload,
    StateOffload,
    activations_offloaded,
    offloaded,
    streamed,
)
from gnomon.engines.training.imported import TrainingOptions
from gnomon.errors import InputError
from gnomon.spec.training_job import TrainingJob

DEVICES = {"host": "cpu", "nvme": "nvme"}
TIERS = {device: tier for tier, device in DEVICES.items()}
FOLDER = "nvme"
"""`nvme_path`: beside run.sh, where its folder is on the disks."""
AIO = {"block_size": 1048576, "queue_depth": 16, "overlap_events": True, "single_submit": False}
WHERE = "engine.settings.zero"


def device_of(offload: StateOffload | ParameterOffload) -> str:
    """`cpu`, `nvme`, or `none`."""
    return DEVICES[offload.tier] if offload else "none"


def check_offload(job: TrainingJob, *, shares: bool = True) -> None:
    """Raise InputError where DeepSpeed would not offload what a job does; `shares`: whether a share can be said."""
    states, weights, stage = StateOffload.of(job), ParameterOffload.of(job), job.recipe.zero
    if states and not stage:
        message = "DeepSpeed offloads states that ZeRO shards, and zero is 0"
        raise InputError(message, where=WHERE, hint="Use 1, 2 or 3.")
    if states and states.share < 1 and (stage != 3 or not shares):
        message = f"DeepSpeed offloads a share of the states under ZeRO 3 alone, and zero is {stage}"
        hint = f"Use 3, or {OFFLOAD} with all of them." if shares else f"Use {OFFLOAD} with all of them."
        raise InputError(message, where=WHERE, hint=hint)
    if states.tier == NVME and stage != 3:
        message = f"DeepSpeed keeps states on NVMe under ZeRO 3 alone, and zero is {stage}"
        raise InputError(message, where=WHERE, hint="Use 3.")
    if weights and stage != 3:
        message = f"DeepSpeed offloads weights under ZeRO 3 alone, and zero is {stage}"
        raise InputError(message, where=WHERE, hint="Use 3.")


def zero_fields(job: TrainingJob) -> dict[str, Any]:
    """Of `zero_optimization`."""
    found: dict[str, Any] = {}
    states, weights = StateOffload.of(job), ParameterOffload.of(job)
    if states:
        found["offload_optimizer"] = {**_place(states), **({"ratio": states.share} if states.share < 1 else {})}
    if weights:
        found["offload_param"] = _place(weights)
    return found


def _place(offload: StateOffload | ParameterOffload) -> dict[str, Any]:
    disks = {"nvme_path": FOLDER} if offload.tier == NVME else {}
    return {"device": device_of(offload), "pin_memory": True, **disks}


def aio_fields(job: TrainingJob) -> dict[str, Any]:
    """How disks are read, where there is something on them."""
    disks = NVME in (StateOffload.of(job).tier, ParameterOffload.of(job).tier)
    return {"aio": AIO} if disks else {}


def checkpoints_on_host(job: TrainingJob) -> bool:
    """Whether `cpu_checkpointing` says what a job offloads of its activations: the inputs of recomputed layers."""
    offload = ActivationOffload.of(job)
    return offload.whole and offload.copies == BLOCKING and job.recipe.recompute == "full"


def offload_unsaid(job: TrainingJob) -> list[str]:
    """What no field says, and what is done in its place."""
    states, found = StateOffload.of(job), ParameterOffload.of(job).unsaid("DeepSpeed")
    if states and states.stride:
        found.append(f"stride={states.stride} of {OFFLOAD}: DeepSpeed updates what it offloads on the host alone")
    if aio_fields(job):
        found.append(f'the folder of the disks: nvme_path is "{FOLDER}", beside where run.sh is started')
    return found


def activations_unsaid(job: TrainingJob) -> list[str]:
    """Activations that Megatron-DeepSpeed does not offload."""
    if not ActivationOffload.of(job) or checkpoints_on_host(job):
        return []
    kept = "the inputs of recomputed layers alone, between the passes (recompute full, copies=blocking)"
    return [f"the technique {ACTIVATIONS}: DeepSpeed offloads {kept}"]


def offload_read(options: TrainingOptions) -> Named:
    """Techniques that a configuration asks for."""
    states, weights = "zero_optimization.offload_optimizer", "zero_optimization.offload_param"
    ratio = options.share(f"{states}.ratio", default=1.0)
    device, other = (options.text(f"{name}.device", default="none") for name in (states, weights))
    found = offloaded(ratio, TIERS[device]) if is_place(device, f"{states}.device") else {}
    if is_place(other, f"{weights}.device"):
        found |= streamed(TIERS[other])
    if options.flag("activation_checkpointing.cpu_checkpointing"):
        found |= activations_offloaded(copies=BLOCKING)
    return found


def is_place(device: str, where: str) -> bool:
    """Whether states or weights are offloaded. Raises for a place that they cannot be offloaded to."""
    if device not in ("none", *TIERS):
        raise InputError(f"'{device}' is no device to offload to", where=where, hint=f"Use {', '.join(TIERS)} or none.")
    return device != "none"


def only_recomputed(techniques: Named, recompute: str, options: TrainingOptions) -> Named:
    """Checkpoints are what recomputation leaves: without it there are none to copy to the host."""
    if ACTIVATIONS not in techniques or recompute == "full":
        return techniques
    options.ignore("cpu_checkpointing: true", "nothing is recomputed, so there are no checkpoints", affects=False)
    return {name: values for name, values in techniques.items() if name != ACTIVATIONS}


EXPRESSED = (OFFLOAD, PARAMETERS, ACTIVATIONS)
