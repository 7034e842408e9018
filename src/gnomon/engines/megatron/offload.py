"""What Megatron-LM keeps in the host's memory: options, written and read back."""

from __future__ import annotations

from collections.abc import Iterator

from gnomon.engines.megatron.options import Value
from gnomon.engines.training.expressed import (
    ACTIVATIONS,
    ALL_MODULES,
    HOST,
    OFFLOAD,
    STREAMS,
    ActivationOffload,
    Named,
    StateOffload,
    activations_offloaded,
    offloaded,
)
from gnomon.engines.training.imported import TrainingOptions
from gnomon.errors import InputError
from gnomon.spec.training_job import TrainingJob

ENVIRONMENT = "export NVTE_CPU_OFFLOAD_V1=1"
"""Fine-grained offloading runs beside the first of Transformer Engine's two implementations, since its 2.10."""
MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
IN_FLIGHT = 2.0


def check_activations(job: TrainingJob) -> None:
    """Raise InputError where Megatron-LM would not offload the activations of a job: whole layers leave without a
    pipeline and without recomputation (`TransformerConfig`)."""
    offload = ActivationOffload.of(job)
    if not offload or offload.modules != ALL_MODULES:
        return
    if job.strategy.pp > 1:
        message = f"Megatron-LM offloads whole layers without a pipeline, and pp is {job.strategy.pp}"
        hint = f"Use 1, or name modules of {ACTIVATIONS}."
        raise InputError(message, where="strategy.pp", hint=hint)
    if job.recipe.recompute != "none":
        message = f"Megatron-LM does not offload layers that it recomputes, and recompute is {job.recipe.recompute}"
        raise InputError(
            message, where="engine.settings.recompute", hint=f"Use none, or name modules of {ACTIVATIONS}."
        )


def activation_options(job: TrainingJob) -> dict[str, Value]:
    """Layers of Transformer Engine's offload, or operators of the fine-grained one."""
    offload = ActivationOffload.of(job)
    if not offload:
        return {}
    if offload.modules == ALL_MODULES:
        return {"--cpu-offloading-num-layers": _layers(job, offload)}
    return {
        "--fine-grained-activation-offloading": True,
        "--offload-modules": tuple(offload.modules.split("+")),
        "--activation-offload-fraction": offload.share if offload.share < 1 else False,
        "--fine-grained-offloading-max-inflight-offloads": round(offload.in_flight),
    }


def environment(job: TrainingJob) -> list[str]:
    offload = ActivationOffload.of(job)
    return [ENVIRONMENT] if offload and offload.modules != ALL_MODULES else []


def _layers(job: TrainingJob, offload: ActivationOffload) -> int:
    """The last layer stays: its backward pass comes next."""
    return min(offload.layers or round(offload.share * job.model.layers), job.model.layers - 1)


def offload_unsaid(job: TrainingJob) -> Iterator[str]:
    """What no option says, and what is done in its place."""
    states, found = StateOffload.of(job), ActivationOffload.of(job)
    if states and states.stride:
        yield f"stride={states.stride} of {OFFLOAD}: Megatron-LM updates what it offloads on the host alone"
    if states and states.flush != "beside":
        yield f"flush={states.flush} of {OFFLOAD}: Megatron-LM overlaps gradient copies with what follows"
    if states and states.tier != HOST:
        yield f"tier={states.tier} of {OFFLOAD}: Megatron-LM offloads to the host's memory"
    if not found:
        return
    if found.copies != STREAMS:
        yield f"copies={found.copies} of {ACTIVATIONS}: Megatron-LM copies on streams of their own"
    if found.modules != ALL_MODULES and found.layers:
        yield f"layers={found.layers} of {ACTIVATIONS}: Megatron-LM offloads modules of a share of the layers"
    if found.modules == ALL_MODULES and found.in_flight != IN_FLIGHT:
        yield f"in_flight={found.in_flight:g} of {ACTIVATIONS}: Transformer Engine has its own rule for whole layers"
    if found.modules == ALL_MODULES and found.share < 1:
        yield f"share={found.share:g} of {ACTIVATIONS}: {_layers(job, found)} of {job.model.layers} layers"


def offload_read(options: TrainingOptions, layers: int) -> Named:
    """Techniques that a command asks for; of a network of so many layers."""
    found: Named = {}
    share = options.share("optimizer-offload-fraction", default=1.0)
    if options.flag("optimizer-cpu-offload"):
        found |= offloaded(share)
    count = options.whole("cpu-offloading-num-layers", default=0, least=0)
    options.take("cpu-offloading")  # which the number of layers decides
    if count:
        found |= activations_offloaded(**({} if count >= layers - 1 else {"layers": count}))
    modules, part = options.take("offload-modules"), options.share("activation-offload-fraction", default=1.0)
    in_flight = options.whole("fine-grained-offloading-max-inflight-offloads", default=round(IN_FLIGHT))
    if options.flag("fine-grained-activation-offloading") and modules is not None and part:
        named = modules if isinstance(modules, tuple) else tuple(str(modules).split(","))
        values = {"share": part} if part < 1 else {}
        found |= _fine_grained(named, options, values | ({"in_flight": in_flight} if in_flight != IN_FLIGHT else {}))
    return found


def _fine_grained(named: tuple[str, ...], options: TrainingOptions, values: dict[str, float]) -> Named:
    """`fused_group_mlp` offloads what experts read, and what their activation reads."""
    known = [one for one in MODULES if one in named or ("fused_group_mlp" in named and one in MODULES[-2:])]
    strange = [one for one in named if one not in (*MODULES, "fused_group_mlp")]
    if strange:
        hint = f"These are: {', '.join(MODULES)}."
        raise InputError(f"'{strange[0]}' is not known", where=options.where("offload-modules"), hint=hint)
    return activations_offloaded(modules="+".join(known), **values)
