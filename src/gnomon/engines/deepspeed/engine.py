"""DeepSpeed behind the contract of training engines, in the version whose measurements are published and today's."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.deepspeed import ENGINE
from gnomon.engines.deepspeed.style import optimizers
from gnomon.engines.megatron.engine import LAUNCH_S
from gnomon.engines.megatron.style import fused, parted
from gnomon.engines.training.job import check_experts
from gnomon.engines.training.traits import Traits
from gnomon.errors import InputError, unknown_name
from gnomon.graph.trained import check_trained
from gnomon.spec import AttentionMixer, Model, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import RECOMPUTE

VERSIONS = ENGINE.versions
"""Of 2022 with Megatron-LM 2.4's layers (BLOOM, MT-NLG), of 2023 with those of 3.0, whose collectives of tensor
parallelism overlap with GEMMs by weight (vTrain), and of 2026 with fused attention."""
EARLY = VERSIONS[0]
RUNTIME_BYTES = 5.5e9
"""CUDA context, libraries, and buffers of NCCL's communicators of tensor, pipeline and data parallelism: with the
fragmentation below, chosen on every second of 33 of BLOOM's trial runs with their memory."""
FRAGMENTATION = 0.11
SPARE = 0.0
"""Reserved blocks are released where memory runs out, so that fragmentation keeps no plan from running."""
UNALIGNED = {"Ampere": {"gemm_unaligned": 0.25}}
"""Batched GEMMs of heads whose width is no multiple of 8, in the cuBLAS of 2022 (CUDA 11), relative to today's:
`python -m tools.training_software unaligned`."""
SPREAD = 0.13
"""Of today's version, as earlier ones showed it in both directions: an estimate."""
RUN_SPREAD = {"0.5": {"Ampere": (0.047, 0.144)}, "0.9": {"Ampere": (0.047, 0.117)}}
"""`python -m tools.training_software spread`, of BLOOM's and MT-NLG's runs and of vTrain's. All fitted runs of the
first took longer than predicted: towards shorter ones it has the other's."""
TILE = (256, 128)
"""cuBLAS of CUDA 11 has tiles of this size for large GEMMs on an A100, and lets a started wave run out: BLOOM's authors
chose widths by it."""


@dataclass(frozen=True)
class DeepSpeed:
    """Megatron's layers under DeepSpeed's pipeline engine: 1F1B, one micro-batch sent after the other, nothing
    overlapped."""

    version: str = VERSIONS[-1]
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise unknown_name("version of deepspeed", self.version, VERSIONS)

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        today, early = self.version == VERSIONS[-1], self.version == EARLY
        launch = LAUNCH_S["2026.08"] if today else LAUNCH_S["3.0"]
        return Traits(
            style=fused() if today else parted(overlap=not early, gradient_dtype="bf16"),
            optimizers=optimizers(dtype),
            efficiency={} if today else UNALIGNED,
            whole_waves=TILE if early else None,
            system_spread=SPREAD,
            run_spread=RUN_SPREAD.get(self.version, {}),
            wire_bytes=4.0 if dtype == "bf16" else 2.0,
            blocking_sends=True,
            launch_s=dict.fromkeys(RECOMPUTE, launch),
            runtime_bytes=RUNTIME_BYTES,
            spare=SPARE,
            fragmentation=FRAGMENTATION,
            schedules=("1f1b",),
        )

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        check_trained(model, self.title)
        check_experts(model, strategy, recipe)
        if model.is_moe or not all(isinstance(block.mixer, AttentionMixer) for block in model.blocks):
            message = f"{model.name} is not priced under DeepSpeed: dense networks with softmax attention are"
            raise InputError(message, where="model", hint="Use the engine megatron.")
        if strategy.cp > 1:
            message = f"{strategy.cp} is not 1: context parallelism is not priced under DeepSpeed"
            raise InputError(message, where="strategy.cp", hint="Use 1, or the engine megatron.")
        if strategy.pp > 1 and recipe.schedule != "1f1b":
            message = f"DeepSpeed's pipeline has no schedule {recipe.schedule}"
            raise InputError(message, where="engine.settings.schedule", hint="Use 1f1b.")
        if strategy.pp > 1 and recipe.zero > 1:
            message = f"DeepSpeed does not combine ZeRO {recipe.zero} with a pipeline"
            raise InputError(message, where="engine.settings.zero", hint="Use 0 or 1, or a pp of 1.")
        if strategy.tp > 1 and recipe.sequence_parallel:
            message = "true, but Megatron-DeepSpeed's tensor parallelism is priced without sequence parallelism"
            raise InputError(message, where="engine.settings.sequence_parallel", hint="Set it to false.")
        if recipe.optimizer != "adamw":
            message = f"{recipe.optimizer} is not priced under DeepSpeed"
            raise InputError(message, where="engine.settings.optimizer", hint="Use adamw.")
        if dtype == "fp8":
            raise InputError("fp8 is not priced under DeepSpeed", where="dtype", hint="Use bf16 or fp16.")
