"""Megatron-LM behind the contract of training engines, in the versions whose measurements are published and today's."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.megatron import launch
from gnomon.engines.megatron.style import fused, optimizers, parted
from gnomon.engines.training.traits import Traits
from gnomon.errors import InputError, unknown_name
from gnomon.graph.support import check_learnt
from gnomon.spec import Model, Plan, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import RECOMPUTE

VERSIONS = ("2.4", "3.0", "2026.08")
"""Of April 2021 (Narayanan et al., SC21), of mid 2022 (Korthikanti et al.), and of August 2026."""
RUNTIME_BYTES = 2.5e9
"""CUDA context, libraries, workspaces and the buffers of NCCL's communicators: an estimate, not measured."""
SPARE = 0.03
"""Lost to fragments: an estimate as well."""
ZERO = {"2.4": (0,), "3.0": (0, 1), "2026.08": (0, 1, 2, 3)}
"""The distributed optimizer came with 3.0, sharded gradients and weights with Megatron-FSDP."""
LAUNCH_S = {"2.4": 65e-6, "3.0": 65e-6, "2026.08": 29e-6}
"""Host seconds a listed kernel. 65 us: one constant fitted to every second of 120 single-node runs of small networks
(vTrain, Bang et al. 2024, Megatron-DeepSpeed on A100), where a layer never took less than 3.2 ms; the other half is
off by 8% with it and by 32% without. Today's is taken to be PyTorch's own, measured under the built-in runner."""


@dataclass(frozen=True)
class Megatron:
    version: str = VERSIONS[-1]
    name: str = "megatron"
    title: str = "Megatron-LM"

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise unknown_name("version of megatron", self.version, VERSIONS)

    def traits(self, model: Model) -> Traits:
        """Without a pipeline PyTorch's DDP hides gradient reduction. 2.4 hides nothing else; 3.0 hides the collectives
        of tensor parallelism behind weight products; today's also hides gradient reduction in pipelines, and sends
        beside the passes."""
        today = self.version == VERSIONS[-1]
        summed = self.version != "2.4"
        return Traits(
            style=fused() if today else parted(overlap=summed, gradient_dtype="fp32" if summed else "bf16"),
            optimizers=optimizers(fp32_sum=summed),
            wire_bytes=None if summed else 2.0,
            overlap_reduce=today,
            overlap_alone=True,
            blocking_sends=not today,
            launch_s=dict.fromkeys(RECOMPUTE, LAUNCH_S[self.version]),
            zero=ZERO[self.version],
            runtime_bytes=RUNTIME_BYTES,
            spare=SPARE,
        )

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        check_learnt(model)
        if model.is_moe:
            raise InputError(f"{model.name} is a mixture of experts, whose training is not priced yet", where="model")
        windows = [block.attention.window for block in model.blocks if block.attention.window is not None]
        if windows and load.seq > min(windows):
            hint = f"Use at most {min(windows)}."
            message = f"{model.name} looks back {min(windows)} tokens, which is not priced yet for longer sequences"
            raise InputError(message, where="load.seq", hint=hint)
        if recipe.zero not in ZERO[self.version]:
            hint = f"Use {' or '.join(map(str, ZERO[self.version]))}, or a later version: {VERSIONS[-1]}."
            raise InputError(
                f"Megatron-LM {self.version} has no ZeRO {recipe.zero}", where="engine.settings.zero", hint=hint
            )

    def command(self, plan: Plan) -> list[str]:
        return launch.command(plan)
