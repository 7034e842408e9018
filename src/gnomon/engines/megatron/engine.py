"""Megatron-LM behind the contract of training engines, in the versions whose measurements are published and today's."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.megatron import launch
from gnomon.engines.megatron.style import fused, optimizers, parted
from gnomon.engines.training.traits import Traits
from gnomon.errors import InputError, unknown_name
from gnomon.graph.support import check_priced
from gnomon.spec import Model, Plan, Recipe, Strategy, TrainingLoad

VERSIONS = ("2.4", "3.0", "2026.08")
"""Of April 2021 (Narayanan et al., SC21), of mid 2022 (Korthikanti et al.), and of August 2026."""
RUNTIME_BYTES = 2.5e9
"""CUDA context, libraries, workspaces and the buffers of NCCL's communicators: an estimate, not measured."""
SPARE = 0.03


@dataclass(frozen=True)
class Megatron:
    version: str = VERSIONS[-1]
    name: str = "megatron"
    title: str = "Megatron-LM"

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise unknown_name("version of megatron", self.version, VERSIONS)

    def traits(self, model: Model) -> Traits:
        """2.4 hides nothing; 3.0 hides the collectives of tensor parallelism behind weight products; today's also
        hides gradient reduction, and sends beside the passes."""
        today = self.version == VERSIONS[-1]
        summed = self.version != "2.4"
        return Traits(
            style=fused() if today else parted(overlap=summed, gradient_dtype="fp32" if summed else "bf16"),
            optimizers=optimizers(fp32_sum=summed),
            wire_bytes=None if summed else 2.0,
            overlap_reduce=today,
            blocking_sends=not today,
            runtime_bytes=RUNTIME_BYTES,
            spare=SPARE,
        )

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        check_priced(model)
        if model.is_moe:
            raise InputError(f"{model.name} is a mixture of experts, whose training is not priced yet", where="model")
        windows = [block.attention.window for block in model.blocks if block.attention.window is not None]
        if windows and load.seq > min(windows):
            message = f"{model.name} looks back {min(windows):,} tokens only, whose training is not priced yet"
            raise InputError(message, where="load.seq", hint=f"Use at most {min(windows)}.")

    def command(self, plan: Plan) -> list[str]:
        return launch.command(plan)
