"""The built-in PyTorch runner as a training engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnomon.engines.torch import ENGINE, checks, recompute, techniques
from gnomon.engines.torch.efficiencies import efficiencies, software
from gnomon.engines.torch.style import magnitudes, optimizers, style
from gnomon.engines.training.adapters import AdapterStyle
from gnomon.engines.training.traits import Traits
from gnomon.engines.training.wide import efficient_attention, in_four_bytes
from gnomon.errors import InputError, unknown_name
from gnomon.graph.style import KernelStyle, Stream
from gnomon.spec import Model, MoeFfn, Recipe, Strategy, TrainingLoad

VERSIONS = ENGINE.versions
"""Of 2023, whose measurements are published (Composer and llm-foundry: FSDP, attention in Triton by FlashAttention's
first algorithm, CUDA 11), and the one that the built-in runner is measured with."""
RUNTIME_BYTES = 1.1e9
"""CUDA context, libraries and cuBLAS and NCCL buffers, which PyTorch does not count: an estimate, not measured."""
LAUNCH_S = {"none": 29e-6, "full": 39e-6, "selective": 77e-6}
"""Host seconds per kernel of the eager runner: 24 layers of width 256, which are launch-bound, took 94, 160 and
296 ms per step of two micro-batches on 16 cores of a virtual machine beside an H200 (2026-11-15, PyTorch 2.11)."""
RUN_SPREAD = {"Ampere": (0.047, 0.102), "Hopper": (0.034, 0.066)}
"""`python -m tools.training_software spread`."""
SPARE = 0.02
"""Share of the memory lost to fragmentation of the allocator: an estimate, not measured."""

ADAPTERS = AdapterStyle(
    library="the built-in runner", scales_result=False, nf4="bitsandbytes, or PyTorch's own operators", dora_saves=1
)


def _early(today: KernelStyle) -> KernelStyle:
    """llm-foundry's loss of 2023: FlashAttention's kernel over the logits in 16 bits, in place."""
    return replace(today, fused_loss=True, loss=Stream(1, 0, 1, 1))


@dataclass(frozen=True)
class Torch:
    """PyTorch's own FSDP2, DTensor and pipelining, eager."""

    version: str = VERSIONS[-1]
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise unknown_name("version of torch", self.version, VERSIONS)

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        plain = Traits(
            style=_early(style(model)) if self.version == VERSIONS[0] else style(model),
            optimizers=optimizers(),
            split_sends=False,
            fills_pipelines=True,
            schedules=checks.SCHEDULES,
            recompute=tuple(recompute.MODES),
            recomputed_layers=tuple(recompute.LAYERS),
            split_recompute=("none",),
            split_zero=1,
            split_tp=False,
            whole_sums=True,
            hybrid_shards=(1, 2, 3),
            refuses=techniques.rejections,
            uneven_stages=self.version == VERSIONS[-1],
            gathers_forward=True,
            buffers_ahead=True,
            host_update_apart=True,
            launch_s=LAUNCH_S,
            efficiency=software().get(self.version, {}),
            grouped_gemm=efficiencies()["grouped_gemm"],
            run_spread=RUN_SPREAD if self.version == VERSIONS[0] else {},
            runtime_bytes=RUNTIME_BYTES,
            spare=SPARE,
            adapters=replace(ADAPTERS, magnitudes=magnitudes()) if self.version == VERSIONS[-1] else None,
        )
        return in_four_bytes(plain, dtype, efficient_attention(plain.style, efficiencies()))

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        checks.check(model, strategy, recipe, load, dtype)
        if model.is_moe and self.version != VERSIONS[-1]:
            message = f"mixtures of experts under {self.title} {self.version} are not priced, and {model.name} is one"
            raise InputError(message, where="model", hint=f"Use --engine torch@{VERSIONS[-1]}.")
        if any(isinstance(block.ffn, MoeFfn) and block.ffn.bias for block in model.blocks):
            message = f"{model.name} has experts with biases, which {self.title} runs one by one and is not priced with"
            raise InputError(message, where="model", hint="Use --engine megatron; `gnomon export` writes what runs it.")
