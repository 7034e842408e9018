"""DeepSpeed behind the contract of training engines, in the versions of `releases.py`."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.deepspeed import ENGINE
from gnomon.engines.deepspeed.releases import BY_VERSION
from gnomon.engines.deepspeed.style import optimizers
from gnomon.engines.training.adapters import AdapterStyle
from gnomon.engines.training.job import check_experts
from gnomon.engines.training.traits import Traits
from gnomon.engines.training.wide import check_wide, in_four_bytes, is_wide, parted_attention
from gnomon.errors import InputError, unknown_name
from gnomon.graph.gemm_recipes import GEMM_RECIPES
from gnomon.graph.trained import check_trained
from gnomon.spec import AttentionMixer, Model, Recipe, Strategy, TrainingLoad
from gnomon.spec.recompute import RECOMPUTE, UNIFORM

VERSIONS = ENGINE.versions
"""Of spring 2021, when gathers of ZeRO 3 were not prefetched; of 2022 with Megatron-LM 2.4's layers (BLOOM, MT-NLG); of
2023 with those of 3.0, whose collectives of tensor parallelism overlap with GEMMs by weight (vTrain); of 2024 with the
same without dropout; and of 2026 with fused attention. `releases.py` says how each is known."""
MICS_VERSIONS = VERSIONS[2:]
"""MiCS (Zhang et al. 2022) came with 0.9: ZeRO 3 over `mics_shard_size` ranks, and replicas of them whose gradients are
summed once a step."""
HPZ_VERSIONS = VERSIONS[3:]
"""ZeRO++ (Wang et al. 2023) came with 0.10; of it, the second copies of weights."""
ULYSSES_VERSIONS = VERSIONS[3:]
"""DeepSpeed-Ulysses came with 0.10."""
RUNTIME_BYTES = 5.5e9
"""CUDA context, libraries, and buffers of NCCL's communicators of tensor, pipeline and data parallelism: with the
fragmentation below, chosen on every second of 33 of BLOOM's trial runs with their memory."""
FRAGMENTATION = 0.11
SPARE = 0.0
"""Reserved blocks are released where memory runs out, so that fragmentation keeps no plan from running."""

PIPELINE_ZERO = 1
"""Its pipeline engine asserts that gradients and weights are not sharded."""

ADAPTERS = AdapterStyle(library="PEFT", nf4="bitsandbytes", nf4_clones=True, dora_saves=2)
"""Which DeepSpeed keeps in the format of the network, with fp32 copies beside the optimizer's states."""


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
        release = BY_VERSION[self.version]
        wide = dtype == "bf16" and release.wide_sums
        plain = Traits(
            style=release.style,
            optimizers=optimizers(wide),
            source=release.source,
            efficiency=release.efficiency,
            whole_waves=release.whole_waves,
            system_spread=release.system_spread,
            run_spread=release.run_spread,
            wire_bytes=4.0 if wide else 2.0,
            blocking_sends=True,
            launch_s=dict.fromkeys(RECOMPUTE, release.launch_s),
            sharded_weights=release.sharded_weights,
            exposed_gradient_bytes=release.exposed_gradient_bytes,
            runtime_bytes=RUNTIME_BYTES,
            spare=SPARE,
            fragmentation=FRAGMENTATION,
            schedules=("1f1b",),
            pipeline_zero=PIPELINE_ZERO,
            adapters=ADAPTERS if self.version == VERSIONS[-1] else None,
            hybrid_shards=(3,) if self.version in MICS_VERSIONS else (),
            replicas_once=True,
            second_copies=self.version in HPZ_VERSIONS,
            recomputed_layers=(UNIFORM,),
        )
        return in_four_bytes(plain, dtype, parted_attention(plain.style))

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        check_trained(model, self.title)
        check_experts(model, strategy, recipe)
        check_wide(model, strategy, recipe, load, dtype, self.title)
        if model.is_moe or not all(isinstance(block.mixer, AttentionMixer) for block in model.blocks):
            message = f"{model.name} is not priced under DeepSpeed: dense networks with softmax attention are"
            raise InputError(message, where="model", hint="Use the engine megatron.")
        if strategy.cp > 1:
            self._check_ulysses(strategy, recipe)
        if strategy.pp > 1 and recipe.schedule != "1f1b":
            message = f"DeepSpeed's pipeline has no schedule {recipe.schedule}"
            raise InputError(message, where="engine.settings.schedule", hint="Use 1f1b.")
        if strategy.pp > 1 and recipe.zero > PIPELINE_ZERO:
            message = f"DeepSpeed does not combine ZeRO {recipe.zero} with a pipeline"
            raise InputError(message, where="engine.settings.zero", hint="Use 0 or 1, or a pp of 1.")
        if strategy.tp > 1 and recipe.sequence_parallel:
            message = "true, but Megatron-DeepSpeed's tensor parallelism is priced without sequence parallelism"
            raise InputError(message, where="engine.settings.sequence_parallel", hint="Set it to false.")
        if recipe.optimizer != "adamw":
            message = f"{recipe.optimizer} is not priced under DeepSpeed"
            raise InputError(message, where="engine.settings.optimizer", hint="Use adamw.")
        if dtype in GEMM_RECIPES or (is_wide(dtype) and self.version != VERSIONS[-1]):
            raise InputError(
                f"{dtype} is not priced under DeepSpeed {self.version}", where="dtype", hint="Use bf16 or fp16."
            )

    def _check_ulysses(self, strategy: Strategy, recipe: Recipe) -> None:
        """DeepSpeed-Ulysses (Jacobs et al. 2023): ranks trade tokens for heads around attention, and ZeRO shards over
        them too."""
        if self.version not in ULYSSES_VERSIONS:
            message = f"DeepSpeed {self.version} has no sequence parallelism of its own"
            raise InputError(message, where="strategy.cp", hint=f"Use 1, or deepspeed@{ULYSSES_VERSIONS[0]}.")
        if recipe.cp_comm != "a2a":
            message = f"DeepSpeed's sequence parallelism trades tokens for heads, and cp_comm is {recipe.cp_comm}"
            raise InputError(message, where="engine.settings.cp_comm", hint="Use a2a.")
        if strategy.pp > 1:
            message = "DeepSpeed does not combine its sequence parallelism with a pipeline"
            raise InputError(message, where="strategy.pp", hint="Use 1, or a cp of 1.")
