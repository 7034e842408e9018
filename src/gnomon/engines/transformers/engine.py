"""Hugging Face transformers behind the contract of training engines: one replica per chip, as the Trainer runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.engines.torch.efficiencies import efficiencies
from gnomon.engines.torch.style import magnitudes
from gnomon.engines.training.adapters import AdapterStyle
from gnomon.engines.training.job import check_experts
from gnomon.engines.training.traits import Packing, Traits
from gnomon.engines.transformers import ENGINE
from gnomon.engines.transformers.style import autocast, optimizers, style
from gnomon.errors import InputError, unknown_name
from gnomon.graph.trained import check_trained, windows_of
from gnomon.spec import AttentionMixer, Model, Recipe, Strategy, TrainingLoad
from gnomon.spec.training import RECOMPUTE

VERSIONS = ENGINE.versions
CONTEXT_BYTES = 1.15e9
"""What the allocator cannot have of an H200: the driver's 616 MiB (`gnomon.engines.vllm.reserve.DRIVER_BYTES`), and 0.5
GB of a CUDA context with PyTorch 2.11's kernels, an estimate."""
LAUNCH_S = 29e-6
"""Host seconds per call in training, as in traces (`gnomon.engines.torch.eager.lower.CALL_S`)."""
DTYPES = ("bf16",)
PACKINGS = (
    Packing("none"),
    Packing("max-length"),
    Packing("padding-free", (True,)),
    Packing("bfd", (True,), pads=False),
    Packing("wrapped"),
)
"""DataCollatorWithPadding's `longest` and `max_length`, DataCollatorWithFlattening, and of TRL's SFTConfig
`packing_strategy` bfd, which implies `padding_free`, and wrapped, which forgets where documents end."""
MASTER = "adamw"
"""The optimizer with fp32 weights, which autocast narrows for GEMMs."""


def _other_modules(model: Model) -> Iterator[str]:
    """What the modules of other families do in other kernels."""
    if model.is_moe:
        yield "experts"
    if model.norm_bias:
        yield "layer norms"
    if model.learned_positions:
        yield "learned positions"
    for block in model.blocks:
        if not isinstance(block.mixer, AttentionMixer):
            yield "latent attention"
        if not block.feed_forward.gated:
            yield "feed-forwards without a gate"
        if block.parallel:
            yield "attention and feed-forward side by side"


def _adapters(wide: bool) -> AdapterStyle:
    """PEFT's, over a network that is loaded in 16 bits: adapters in fp32 under autocast (`autocast_adapter_dtype`), or
    in the format of the network."""
    return AdapterStyle(
        library="PEFT",
        kernels=style(),
        casts_input=wide,
        nf4="bitsandbytes",
        nf4_clones=True,
        dora_saves=2,
        magnitudes=magnitudes(),
        strided=efficiencies()["pointwise.strided.bfloat16"],
    )


@dataclass(frozen=True)
class Transformers:
    """Eager modules with SDPA, the model's loss, gradients clipped, fused AdamW; DDP over several chips."""

    version: str = VERSIONS[-1]
    name: str = ENGINE.name
    title: str = ENGINE.title

    def __post_init__(self) -> None:
        if self.version not in VERSIONS:
            raise unknown_name("version of transformers", self.version, VERSIONS)

    def traits(self, model: Model, optimizer: str = "adamw", dtype: str = "bf16") -> Traits:
        return Traits(
            style=autocast() if optimizer == MASTER else style(),
            optimizers=optimizers(),
            overlap_reduce=True,
            launch_s=dict.fromkeys(RECOMPUTE, LAUNCH_S),
            runtime_bytes=CONTEXT_BYTES,
            caching_allocator=True,
            packings=PACKINGS,
            zero=(0,),
            schedules=(),
            recompute=("none", "full"),
            frees_gradients=True,
            bucketed=True,
            adapters=_adapters(wide=optimizer == MASTER),
        )

    def check(self, model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str) -> None:
        check_trained(model, self.title)
        check_experts(model, strategy, recipe)
        for name in ("tp", "pp", "cp", "ep"):
            if getattr(strategy, name) > 1:
                message = f"{getattr(strategy, name)} is not 1: the Trainer's own parallelism is data parallelism"
                raise InputError(message, where=f"strategy.{name}", hint="Use 1, or the engine megatron or torch.")
        if recipe.zero:
            hint = "Use 0, or the engine torch, whose FSDP2 shards states."
            raise InputError(
                f"ZeRO {recipe.zero} is not priced under transformers", where="engine.settings.zero", hint=hint
            )
        if recipe.optimizer not in optimizers():
            hint = f"Use {' or '.join(optimizers())}."
            message = f"{recipe.optimizer} is not priced under transformers"
            raise InputError(message, where="engine.settings.optimizer", hint=hint)
        if dtype not in DTYPES:
            raise InputError(f"{dtype} is not priced under transformers", where="dtype", hint="Use bf16.")
        if why := next(_other_modules(model), ""):
            hint = "Dense decoders with RMS norms and gates are; for others use the engine torch or megatron."
            raise InputError(f"{model.name} is not priced under transformers: it has {why}", where="model", hint=hint)
        if windows_of(model, load.seq):
            message = f"{model.name} has windows shorter than {load.seq} tokens, which make masks under transformers"
            raise InputError(message, where="model", hint="Use shorter sequences, or the engine torch.")
