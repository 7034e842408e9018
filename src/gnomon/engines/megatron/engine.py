"""Megatron-LM behind the contract of training engines, in the versions whose measurements are published and today's."""

from __future__ import annotations

from dataclasses import dataclass

from gnomon.engines.megatron import ENGINE
from gnomon.engines.megatron.style import ATOMIC_BYTES_S, fused, narrow_sums, optimizers, parted
from gnomon.engines.training.adapters import AdapterStyle
from gnomon.engines.training.job import check_equal_stages, check_experts
from gnomon.engines.training.sums import in_half
from gnomon.engines.training.traits import PLAIN_PACKINGS, Packing, Traits
from gnomon.engines.training.wide import check_wide, in_four_bytes, is_wide, parted_attention
from gnomon.errors import InputError, unknown_name
from gnomon.graph.gemm_recipes import BLOCKS, CURRENT, DELAYED, GEMM_RECIPES, MXFP8, NVFP4
from gnomon.graph.trained import check_trained, windows_of
from gnomon.spec import AttentionMixer, LatentAttention, Model, Recipe, Strategy, TrainingLoad
from gnomon.spec.recompute import BLOCK, MODULES, RECOMPUTE, UNIFORM
from gnomon.spec.training import RUN, TWO_LEVELS

VERSIONS = ENGINE.versions
"""Of April 2021 (Narayanan et al., SC21), of mid 2022 (Korthikanti et al.), as the recipes of NeMo and Megatron-Bridge
set it for speed (gradients summed and reduced in 16 bits, weights kept in the format of the GEMMs), and of August
2026."""
EARLY = VERSIONS[:2]
BRIDGE = "bridge"
RUNTIME_BYTES = 2.5e9
"""CUDA context, libraries, workspaces and the buffers of NCCL's communicators: an estimate, not measured."""
BRIDGE_SPREAD = 0.08
"""`python -m tools.training_software spread` finds 0.05 of 14 rows; NVIDIA's own releases differ by 1.26 to 1.77 times
in mixtures of experts."""
SINKS_SPREAD = 0.46
"""Of networks with attention sinks, whose kernels are priced as those without. Published steps of gpt-oss-120b
(Megatron-Bridge performance summary 25.11) took 1.41 and 1.74 times as long as predicted on GB300 and B200, of which
this is the root mean square of the logarithms; 1.62 on GB200 and 1.41 on H100, not used here, lie inside the band."""
RUN_SPREAD = {"2.4": {"Ampere": (0.022, 0.017)}}
"""`python -m tools.training_software spread`."""
SPARE = 0.03
"""Lost to fragments: an estimate as well."""
ZERO = {"2.4": (0,), "3.0": (0, 1), BRIDGE: (0, 1, 2, 3), "2026.08": (0, 1, 2, 3)}
"""The distributed optimizer came with 3.0, sharded gradients and weights with Megatron-FSDP."""
HALF_SUMS = {"2.4": "fp16"}
"""Formats whose gradients a version sums and reduces in 16 bits, as all do where the option
accumulate-allreduce-grads-in-fp32, which bf16 sets, is not given; later ones are priced with it. 2.4 keeps the fp32
copies that an update takes (`zero_grad` and `_copy_model_grads_to_main_grads` of megatron/optimizer/optimizer.py at
0076441): 20 bytes per parameter."""
SCHEDULES = ("gpipe", "1f1b", "interleaved")
"""GPipe is priced for what is published of it; Megatron-LM itself runs the other two."""
PACKINGS = (
    Packing("wrapped", (False, True)),
    Packing("bfd", (True,)),
    Packing("ffd", (True,)),
    Packing("max-length"),
)
"""GPTDataset puts documents one after the other, and keeps them apart with --dataloader-inter-document-masking. --sft
takes conversations that were packed before (a line of its file is a sequence), and pads them to --seq-length."""
BRIDGE_PACKINGS = (
    Packing("none"),
    Packing("ffd", (True,)),
    Packing("max-length"),
    Packing("wrapped", (False, True)),
)
"""Of NeMo and Megatron-Bridge: GPTSFTDataset pads to the longest, or with `pad_to_max_length` to the most; packed
sequences are made by `first_fit_decreasing` and padded to `packed_sequence_size`."""
RECIPES = (DELAYED, CURRENT, BLOCKS, MXFP8, NVFP4)
"""Those of Transformer Engine."""
TF32_VENDORS = ("NVIDIA",)
"""ROCm's Transformer Engine has fp32 multiplied as fp32 (`HIPBLAS_COMPUTE_32F` in its `cublaslt_gemm.cu`)."""
SEARCHED_MODULES = ("moe_act", "layernorm", "mla_up_proj")
"""Those without output, which its recipes of mixtures of experts recompute."""
LAUNCH_S = {"2.4": 65e-6, "3.0": 65e-6, BRIDGE: 29e-6, "2026.08": 29e-6}
"""Host seconds per kernel. 65 us: one constant fitted to every second of 120 single-node runs of small networks
(vTrain, Bang et al. 2024, Megatron-DeepSpeed on A100), where a layer never took less than 3.2 ms; the other half is
off by 8% with it and by 32% without. Today's is taken to be PyTorch's own, measured under the built-in runner."""

ADAPTERS = AdapterStyle(
    library="Megatron-Bridge", gathers=True, keeps_gathered=True, shared_by_experts=True, dora_saves=1
)
"""`megatron.bridge.peft`: an adapter for each of linear_qkv, linear_proj, linear_fc1 and linear_fc2."""


@dataclass(frozen=True)
class Megatron:
    version: str = VERSIONS[-1]
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise unknown_name("version of megatron", self.version, VERSIONS)

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        """Without a pipeline PyTorch's DDP overlaps gradient reduction. 2.4 overlaps nothing else; 3.0 overlaps the
        collectives of tensor parallelism with the GEMMs by weight; today's also overlaps gradient reduction in
        pipelines, and sends with the passes."""
        today = self.version not in EARLY
        summed = self.version != "2.4"
        plain = self._plain(model, today, summed)
        if dtype == HALF_SUMS.get(self.version):
            plain = in_half(plain, stay=True)
        return in_four_bytes(plain.in_format(dtype), dtype, parted_attention(plain.style))

    def _plain(self, model: Model, today: bool, summed: bool) -> Traits:
        """In 16 bits."""
        return Traits(
            style=fused() if today else parted(overlap=summed, gradient_dtype="fp32" if summed else "bf16"),
            optimizers=narrow_sums() if self.version == BRIDGE else optimizers(fp32_sum=summed),
            recipes=RECIPES if today else (),
            narrow_parameters=self.version == BRIDGE,
            system_spread=self._spread(model),
            run_spread=RUN_SPREAD.get(self.version, {}),
            wire_bytes=None if summed else 2.0,
            overlap_reduce=today,
            overlap_alone=True,
            blocking_sends=not today,
            launch_s=dict.fromkeys(RECOMPUTE, LAUNCH_S[self.version]),
            zero=ZERO[self.version],
            pieces=today,
            cuda_graphs=today,
            atomic_bytes_s=ATOMIC_BYTES_S if today else 0.0,
            hybrid_shards=(1, 2, 3) if today else (),
            schedules=SCHEDULES,
            uneven_stages=today,
            recomputed_modules=tuple(MODULES) if today else (),
            searched_modules=SEARCHED_MODULES if today else (),
            recomputed_layers=(UNIFORM,) if self.version == "2.4" else (BLOCK, UNIFORM),
            whole_sums=True,
            packings=BRIDGE_PACKINGS if self.version == BRIDGE else PACKINGS if today else PLAIN_PACKINGS,
            cuts_documents=today,
            tf32_vendors=TF32_VENDORS,
            runtime_bytes=RUNTIME_BYTES,
            spare=SPARE,
            adapters=ADAPTERS if today else None,
        )

    def _spread(self, model: Model) -> float:
        if any(isinstance(block.mixer, AttentionMixer) and block.mixer.sinks for block in model.blocks):
            return SINKS_SPREAD
        return BRIDGE_SPREAD if self.version == BRIDGE else 0.0

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        check_trained(model, f"Megatron-LM {self.version}" if self.version in EARLY else "")
        check_experts(model, strategy, recipe)
        check_wide(model, strategy, recipe, load, dtype, self.title)
        if self.version in EARLY:
            self._check_early(model, strategy, load, dtype)
            if recipe.optimizer not in RUN:
                message = f"{recipe.optimizer} is not priced under Megatron-LM {self.version}"
                raise InputError(message, where="engine.settings.optimizer", hint=f"Use {' or '.join(RUN)}.")
        elif model.is_moe and strategy.tp > 1 and not recipe.sequence_parallel:
            message = "false, but Megatron-LM needs it for experts with tensor parallelism"
            raise InputError(message, where="engine.settings.sequence_parallel", hint="Set it to true.")
        elif strategy.tp > 1 and not recipe.sequence_parallel and _is_latent(model):
            message = "false, but latent attention with tensor parallelism is priced only with it"
            raise InputError(message, where="engine.settings.sequence_parallel", hint="Set it to true.")
        if recipe.bf16_layers and dtype == DELAYED.name:
            message = "Megatron-LM keeps no layers in bf16 where scales are those of earlier steps"
            raise InputError(message, where="engine.settings.bf16_layers", hint="Leave it out, or use fp8-current.")
        windows = windows_of(model, load.seq)
        if windows and strategy.cp > 1 and recipe.cp_comm in ("p2p", TWO_LEVELS):
            message = (
                f"{model.name} has a sliding window of {min(windows)} tokens, which ring attention does not support"
            )
            raise InputError(message, where="engine.settings.cp_comm", hint="Use a2a or allgather.")
        if recipe.zero not in ZERO[self.version]:
            hint = f"Use {' or '.join(map(str, ZERO[self.version]))}, or a later version: {VERSIONS[-1]}."
            raise InputError(
                f"Megatron-LM {self.version} has no ZeRO {recipe.zero}", where="engine.settings.zero", hint=hint
            )

    def _check_early(self, model: Model, strategy: Strategy, load: TrainingLoad, dtype: str) -> None:
        """What came after the versions whose measurements are published, or was never priced in them."""
        check_equal_stages(model, strategy)
        later = {
            f"{model.name} is a mixture of experts": model.is_moe,
            f"{model.name} has latent attention": _is_latent(model),
            f"{model.name} has windows": bool(windows_of(model, load.seq)),
            f"{model.name} has parallel attention and feed-forward": any(b.parallel for b in model.blocks),
            f"cp is {strategy.cp}": strategy.cp > 1,
            f"GEMMs are in {dtype}": dtype in GEMM_RECIPES,
            f"it is in {dtype}": is_wide(dtype),
        }
        for what, there in later.items():
            if there:
                message = f"{what}, which is not priced under Megatron-LM {self.version}"
                raise InputError(message, where="engine", hint=f"Use megatron@{VERSIONS[-1]}.")


def _is_latent(model: Model) -> bool:
    return any(isinstance(block.mixer, LatentAttention) for block in model.blocks)
