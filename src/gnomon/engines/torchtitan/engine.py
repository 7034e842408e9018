"""TorchTitan behind the contract of training engines, in the versions whose measurements are published and today's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.engines.torch.style import optimizers, style
from gnomon.engines.torchtitan import ENGINE
from gnomon.engines.training.adapters import AdapterStyle
from gnomon.engines.training.job import check_experts
from gnomon.engines.training.traits import Packing, Traits
from gnomon.engines.training.wide import check_wide, efficient_attention, in_four_bytes
from gnomon.engines.transformers.style import style as modules
from gnomon.errors import InputError, unknown_name
from gnomon.graph.gemm_recipes import CURRENT, GEMM_RECIPES, MXFP8, NVFP4, ROWS, ROWS_WIDE_WGRAD
from gnomon.graph.style import Stream, compiled
from gnomon.graph.trained import check_trained, windows_of
from gnomon.spec import AttentionMixer, Model, Recipe, Strategy, TrainingLoad
from gnomon.spec.recompute import EVERY, RECOMPUTE, WAYS
from gnomon.spec.training import RUN, TWO_LEVELS

VERSIONS = ENGINE.versions
"""Of 2024 without and with torch.compile, of 2025 with a compiled loss too, of 2026 with PyTorch 2.11's attention."""
EAGER, FIRST_COMPILED, YEAR_2025, TODAY = VERSIONS
FLASH_2 = {
    "Hopper": {"attention_forward": 0.58, "attention_backward": 0.59},
    "Blackwell": {"attention_forward": 0.4, "attention_backward": 0.37},
}
"""FlashAttention 2, which PyTorch's SDPA ran up to 2025, relative to today's kernels: it has Ampere's instructions, and
reached some 370 TFLOP/s forward and 320 backward on an H100 where FlashAttention 3 reached 640 and 550 (Shah et al.
2024, heads of 128, causal, 16k tokens). On Blackwell as many TFLOP/s as on Hopper: an estimate."""
ATTENTION: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    EAGER: FLASH_2,
    FIRST_COMPILED: FLASH_2,
    YEAR_2025: {"Hopper": FLASH_2["Hopper"]},
    TODAY: {},
}
"""On Blackwell the attention of 2025 is cuDNN's (`torchtitan/models/attention.py` puts it first there)."""
COMPLEX_ROPE = Stream(5, 5, 5, 5, 3, 3)
"""Queries and keys widened to fp32, multiplied as complex numbers, and narrowed, each in a kernel of its own both ways:
torch.compile has no code for complex numbers and leaves them to eager kernels (pytorch/torchtitan issue 15)."""
RECIPES = (replace(CURRENT, name="fp8", one_copy=()), ROWS, ROWS_WIDE_WGRAD, replace(MXFP8, gathered_bytes=None), NVFP4)
"""Those of torchao, whose scale per tensor is always that of the step at hand; with it alone weights are gathered
narrow."""
COMPILED_LOSS = Stream(1, 0, 1, 1)
"""Logits in bf16 read once for the loss and once for their gradient, which is beside them: from April 2025 on
(pytorch/torchtitan pull request 1033) the loss is compiled with its widening."""
MERGED = Stream(9.25, 7, 13.75, 11.5, 5, 8)
"""PyTorch's context parallelism (torch/distributed/tensor/experimental/_attention.py, 2024 to 2025), counted: the
result of a block is widened, weighed and added to the sum of those before it; half of the blocks concern the second
half of the queries alone, which is cut out and joined again. Gradients of queries, keys and values are added so too,
and those of keys and values joined to be sent."""
SCHEDULES = ("gpipe", "1f1b", "interleaved")
"""Of torch.distributed.pipelining, by `pipeline_parallel_schedule`."""
SPLIT = ("zb-v", "dualpipe-v", "interleaved-zb")
"""Those with split backwards, which torch.distributed.pipelining refuses for modules under torch.compile (2.13,
`_check_torch_compile_compatibility`)."""
LAUNCH_S = {EAGER: 29e-6} | dict.fromkeys(VERSIONS[1:], 10e-6)
"""Host seconds per kernel: eager as under the built-in runner; compiled graphs launch from C++: an estimate."""
SPREAD = 0.15
"""`python -m tools.training_software spread` finds 0.06 of 5 eager rows and 0.21 of 8 compiled ones."""
RUNTIME_BYTES = 2.2e9
"""CUDA context, libraries, and NCCL's buffers: an estimate."""
SPARE = 0.03
"""Share of the memory lost to fragmentation of the allocator: an estimate."""
FRAGMENTATION = 0.05
"""What the allocator reserves beyond the most it has allocated: 4.5 and 7.2% of two training steps on an H200
(`measurements/h200-2026-11-15/decoders.json`)."""


@dataclass(frozen=True)
class TorchTitan:
    """Its default recipes: FSDP2 over fp32 shards, bf16 gathered layers, activation checkpointing by operator."""

    version: str = VERSIONS[-1]
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise unknown_name("version of torchtitan", self.version, VERSIONS)

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        eager = self.version == EAGER
        kernels = modules() if eager else compiled(style(model))
        if self.version in (FIRST_COMPILED, YEAR_2025):
            kernels = replace(kernels, rope=COMPLEX_ROPE)
        if self.version in (YEAR_2025, TODAY):
            kernels = replace(kernels, fused_loss=True, loss_in_place=False, loss=COMPILED_LOSS)
        plain = Traits(
            style=replace(kernels, alternate_gemms=True, merged=MERGED, late_transpose=True),
            recipes=RECIPES,
            optimizers=optimizers(),
            efficiency=ATTENTION[self.version],
            system_spread=SPREAD,
            split_sends=False,
            fills_pipelines=True,
            uneven_stages=True,
            pieces=not eager,
            hybrid_shards=(2, 3),
            schedules=SCHEDULES + (SPLIT if eager else ()),
            recompute=WAYS,
            recomputed_layers=(EVERY,),
            whole_sums=True,
            packings=(Packing("wrapped", (True,) if self.version == TODAY else (False,)),),
            gathers_forward=True,
            frees_gradients=True,
            launch_s=dict.fromkeys(RECOMPUTE, LAUNCH_S[self.version]),
            runtime_bytes=RUNTIME_BYTES,
            spare=SPARE,
            fragmentation=FRAGMENTATION,
            adapters=_adapters(optimizer) if self.version == TODAY else None,
        )
        return in_four_bytes(plain.in_format(dtype), dtype, efficient_attention(plain.style, efficiencies()))

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        check_trained(model, self.title)
        check_experts(model, strategy, recipe)
        check_wide(model, strategy, recipe, load, dtype, self.title)
        if model.is_moe or not all(isinstance(block.mixer, AttentionMixer) for block in model.blocks):
            message = f"{model.name} is not priced under TorchTitan: dense networks with softmax attention are"
            raise InputError(message, where="model", hint="Use the engine megatron.")
        if windows_of(model, load.seq):
            message = f"{model.name} has windows shorter than {load.seq} tokens, which are not priced under TorchTitan"
            raise InputError(message, where="model", hint="Use the engine megatron.")
        if strategy.cp > 1 and recipe.cp_comm == TWO_LEVELS:
            message = f"TorchTitan has no {TWO_LEVELS} among its ways to exchange keys"
            raise InputError(message, where="engine.settings.cp_comm", hint="Use allgather or p2p.")
        if recipe.optimizer not in RUN:
            message = f"{recipe.optimizer} is not priced under TorchTitan"
            raise InputError(message, where="engine.settings.optimizer", hint=f"Use {' or '.join(RUN)}.")
        if dtype in GEMM_RECIPES and self.version == EAGER:
            hint = f"Use bf16, or torchtitan@{FIRST_COMPILED}."
            raise InputError(f"{dtype} needs torch.compile under TorchTitan", where="dtype", hint=hint)


def _adapters(optimizer: str) -> AdapterStyle:
    """Its LoRAConverter, which makes adapters of all linear layers, the head among them. Frozen weights stay in the
    format that weights are trained in, and FSDP casts what it gathers."""
    at_rest = 4.0 if optimizer == "adamw" else 2.0
    return AdapterStyle(library="TorchTitan's LoRAConverter", frozen_bytes=at_rest, head=True)
