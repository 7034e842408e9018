"""Training in four bytes: activations, weights and gradients in fp32, GEMMs in fp32 or tf32.

tf32 is what PyTorch means by it: no format that anything is stored in, but how tensor cores multiply values of fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gnomon.engines.training.traits import Optimizer, Traits, Update
from gnomon.errors import InputError
from gnomon.graph.dtypes import width
from gnomon.graph.gemm_recipes import multiplied_in
from gnomon.graph.style import KernelStyle, Stream
from gnomon.spec import AttentionMixer, Chip, Model, Recipe, Strategy, TrainingLoad

WIDE = 4.0
"""Bytes of a value."""
ENVIRONMENT = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
"""By which PyTorch runs GEMMs of fp32 in tf32 (1), or does not (0, and unless told)."""
ROCM_ENVIRONMENT = "HIPBLASLT_ALLOW_TF32"
"""Without which (1) PyTorch does not do so on AMD's chips, whatever else it is told."""
LIBRARIES = "NVIDIA_TF32_OVERRIDE"
"""With 0, no library of NVIDIA's runs fp32 in tf32, whatever a program tells it."""
COPIED = ("optimizer.copy_back", "optimizer.widen")
"""Kernels between working weights and fp32 ones, which are the same here."""
_MASTER = 4.0
"""Bytes of an fp32 copy of a weight."""
SOFTMAX = Stream(3, 3, 4, 3, 3, 3)
"""Scores scaled, masked and normed in kernels of their own."""


def is_wide(dtype: str) -> bool:
    return width(multiplied_in(dtype)) == WIDE


def check_wide(model: Model, strategy: Strategy, recipe: Recipe, load: TrainingLoad, dtype: str, engine: str) -> None:
    """Raise for what is not priced in four bytes: kernels that take 16 bits alone, or attention over several ranks or
    over sequences that differ in length."""
    if not is_wide(dtype):
        return
    if load.sequences is not None:
        message = f"attention over sequences that differ in length takes 16 bits, and the weights are in {dtype}"
        raise InputError(message, where="load.lengths", hint="Leave it out, or use bf16.")
    other = next((block.mixer for block in model.blocks if not isinstance(block.mixer, AttentionMixer)), None)
    if model.is_moe or other is not None:
        what = "experts" if model.is_moe else f"layers of the kind {type(other).__name__}"
        message = f"{model.name} has {what}, which are not priced in {dtype} under {engine}"
        raise InputError(message, where="dtype", hint="Use bf16.")
    if recipe.optimizer == "adamw-bf16":
        message = f"adamw-bf16 keeps everything in bf16, and the weights are in {dtype}"
        raise InputError(message, where="engine.settings.optimizer", hint="Use adamw.")
    if strategy.cp > 1:
        message = f"{strategy.cp} is not 1, and attention over several ranks takes 16 bits"
        raise InputError(message, where="strategy.cp", hint="Use 1, or bf16.")


def exported(dtype: str, chip: Chip) -> list[str]:
    """The lines of a script that say what GEMMs of fp32 run in."""
    if not is_wide(dtype):
        return []
    said = {ENVIRONMENT: int(dtype == "tf32")}
    said |= {ROCM_ENVIRONMENT: said[ENVIRONMENT]} if chip.vendor == "AMD" else {}
    said |= {LIBRARIES: 0} if dtype == "fp32" else {}
    return [f"export {name}={value}" for name, value in said.items()]


def imported(dtype: str, environment: Mapping[str, str], unless_told: bool = False) -> str:
    """What a program's format is, with what its script says of GEMMs in fp32. `unless_told` is of programs whose
    library of GEMMs takes tf32 by itself."""
    if dtype != "fp32" or environment.get(LIBRARIES) == "0":
        return dtype
    return "tf32" if unless_told or environment.get(ENVIRONMENT) == "1" else dtype


def in_four_bytes(traits: Traits, dtype: str, style: KernelStyle) -> Traits:
    """An engine's traits in a format of four bytes, with the attention that it has there; as they are in others."""
    if not is_wide(dtype):
        return traits
    return replace(
        traits,
        style=replace(style, gradient_dtype="fp32", wide_stream=False, norm_saves=None),
        optimizers={name: _plain(one) for name, one in traits.optimizers.items() if name != "adamw-bf16"},
        wire_bytes=None,
    )


def _plain(one: Optimizer) -> Optimizer:
    """One copy of the weights, and gradients as autograd leaves them."""
    fused = one.accumulate.reads == 0
    return replace(
        one,
        weight_bytes=WIDE,
        gradient_bytes=WIDE,
        state_bytes=one.state_bytes - _MASTER,
        sharded_weight_bytes=WIDE,
        updates=tuple(update for update in one.updates if update.name not in COPIED),
        accumulate=one.accumulate if fused else Update(one.accumulate.name, 8, 4, one.accumulate.efficiency),
        clear=Update(one.clear.name, 0, WIDE, one.clear.efficiency),
        casts=(),
        copy_bytes=0.0,
        ends=_plain(one.ends) if one.ends else None,
    )


def parted_attention(style: KernelStyle) -> KernelStyle:
    """Attention as GEMMs and a softmax, where fused kernels take 16 bits alone (Transformer Engine)."""
    return replace(style, softmax=SOFTMAX)


def efficient_attention(style: KernelStyle, measured: Mapping[str, float]) -> KernelStyle:
    """PyTorch's memory-efficient attention, which takes fp32."""
    back = measured["attention.wide.backward"]
    return replace(style, attention_efficiency=measured["attention.wide"], attention_gradient_efficiency=back)
