"""LoRA under vLLM 0.24: which layers adapters have, what slots for them take, and what they cost in a step.

Slots have room for `max_lora_rank` in every linear layer, and for the embedding and the head of families that vLLM
gives such (`embedding_modules`); kernels run at that rank, whatever an adapter's own is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gnomon.catalog.base import packaged
from gnomon.cost.adapters import AdaptedLayers, AdapterCost
from gnomon.cost.governor import FIGURES
from gnomon.engines.base import Deployment
from gnomon.engines.vllm.weights import StageWeights, cut_tensor
from gnomon.errors import InputError
from gnomon.graph.dtypes import width
from gnomon.spec import AttentionMixer, Block, DenseFfn, Model, Strategy

FILE = Path(__file__).parent / "features.yaml"
GROUPS = (("q", "k", "v"), ("out",), ("gate", "up"), ("down",))
"""Roles of layers that share their inputs, which vLLM runs as one."""
WITH_ENDS = ("llama", "qwen3")
"""Families whose embedding and head may have adapters (`embedding_modules`)."""


@cache
def features() -> Mapping[str, Any]:
    """What was measured of vLLM's options."""
    found: dict[str, Any] = packaged(FILE)
    return found


def served(settings: Mapping[str, Any]) -> bool:
    """Whether vLLM serves adapters with its own kernels."""
    return bool(settings.get("enable_lora"))


def check(deployment: Deployment) -> None:
    """Refuse models whose adapters Gnomon cannot price."""
    if not deployment.settings["enable_lora"]:
        return
    plain = all(isinstance(b.mixer, AttentionMixer) and isinstance(b.ffn, DenseFfn) for b in deployment.model.blocks)
    if not plain or deployment.model.towers:
        raise InputError(
            f"adapters are priced for dense decoders with plain attention, which {deployment.model.name} is not",
            where="setting enable_lora",
            hint="Leave it out: requests then run as on the base model.",
        )


def groups(block: Block, model: Model, strategy: Strategy) -> Iterator[AdaptedLayers]:
    """Linear layers of a layer on one rank, by what they read."""
    tensors = [
        cut for t in block.tensors(model.hidden, model.norm_parameters) for cut in cut_tensor(t, block, strategy)
    ]
    for roles in GROUPS:
        found = [tensor for tensor in tensors if tensor.role in roles]
        if found:
            yield AdaptedLayers(block.count, found[0].columns, tuple(tensor.rows for tensor in found))


def adapter_bytes(model: Model, strategy: Strategy, rank: int) -> float:
    """One adapter of all linear layers on one rank."""
    layers = [group for block in model.blocks for group in groups(block, model, strategy)]
    values = sum(group.times * (len(group.outputs) * group.inputs + sum(group.outputs)) for group in layers)
    return float(rank * values * width(model.working_dtype))


def slot_bytes(deployment: Deployment, stage: StageWeights) -> float:
    """Slots for adapters on one rank of a stage."""
    settings, model = deployment.settings, deployment.model
    if not settings["enable_lora"]:
        return 0.0
    slots, rank, share = settings["max_loras"], settings["max_lora_rank"], len(stage.layers) / model.layers
    total = slots * share * adapter_bytes(model, deployment.strategy, rank)
    if model.family in WITH_ENDS:
        end = slots * rank * (model.vocab + model.hidden) * width(model.working_dtype)
        total += end * (stage.first + stage.last)
    return float(total)


def adapter_cost(deployment: Deployment) -> AdapterCost | None:
    """What adapters add to steps; nothing without them."""
    settings, model, chip = deployment.settings, deployment.model, deployment.pool.chip
    if not settings["enable_lora"]:
        return None
    figures = features()["lora"]["figures"]
    return AdapterCost(
        layers=[group for block in model.blocks for group in groups(block, model, deployment.strategy)],
        rank=settings["max_lora_rank"],
        processors=chip.sm_count,
        bandwidth_bytes_s=chip.memory_bandwidth_bytes_s,
        joules_per_byte=deployment.profile.power["j_per_byte"] * FIGURES.elementwise_byte,
        host_spread=figures["host_spread"],
        **{f"{name}_s": figures[f"{name}_us"] * 1e-6 for name in ("launch", "tile", "read", "host")},
    )


def limits(deployment: Deployment) -> dict[str, Any]:
    """What the scheduler knows of adapters."""
    settings, strategy = deployment.settings, deployment.strategy
    if not settings["enable_lora"]:
        return {}
    figures = features()["lora"]["figures"]
    size = adapter_bytes(deployment.model, strategy, settings["max_lora_rank"]) * strategy.tp
    return {
        "adapter_slots": settings["max_loras"],
        "host_adapters": settings["max_cpu_loras"],
        "adapter_copy_s": size / strategy.tp / figures["copy_bytes_s"],
        "adapter_read_s": size / figures["read_bytes_s"],
        "adapters_wait": True,  # LoRAKernelMeta.prepare_tensors copies a flag from the device
    }
