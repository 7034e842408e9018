"""Which kernels vLLM 0.24 picks for a format of weights on a chip, and what it cannot run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gnomon.engines.base import Deployment
from gnomon.engines.vllm.kernels import AUTO, experts_kernel, padded_to, runs
from gnomon.errors import InputError
from gnomon.graph.formats import gemm_dtype, known
from gnomon.spec import Block, Chip, Format, Model, MoeFfn
from gnomon.spec.formats import NARROW, OF_TECHNIQUES, PLAIN_BITS, plain

CACHES = ("bf16", "fp16", "fp8")
"""Formats of the cache with a fit behind them."""
BEFORE_MARLIN = ("Kepler", "Maxwell", "Pascal", "Volta")
"""Marlin needs Turing's tensor cores."""
NO_INT8 = ("Blackwell", "Blackwell Ultra", "Rubin")
"""vLLM has no kernels for int8 inputs there."""
EXPERTS, ALL_EXPERTS = "expert_", ("expert_gate", "expert_up", "expert_down")
"""How the roles of a mixture's matrices begin, and all of them; one format is theirs."""
NATIVE = {"fp8": "fp8", "int8": "int8", "nvfp4": "fp4"}
"""The rate a chip needs for GEMMs whose inputs are quantized to a format."""


def check_formats(deployment: Deployment) -> None:
    """Raise InputError where vLLM cannot run the weights or the cache in the requested formats."""
    chip, dtype, kv_dtype = deployment.pool.chip, deployment.dtype, deployment.kv_dtype
    run_model(deployment)
    if dtype in PLAIN_BITS and (dtype not in chip.rates_flops or dtype == "fp32"):
        raise InputError(f"'{dtype}' is not priced for vllm on {chip.name}", where="--dtype", hint=_runs_there(chip))
    if kv_dtype not in CACHES:
        hint = f"Known: {', '.join(CACHES)}."
        raise InputError(f"'{kv_dtype}' is not priced for vllm yet", where="--kv-dtype", hint=hint)


def run_model(deployment: Deployment, experts: str = "") -> Model:
    """The model with every format as it runs; a technique with its own GEMM kernels runs them as stored. `experts` is
    the kernel of experts that an engine with vLLM's layers has by a setting of its own."""
    if deployment.techniques.brings_gemm_kernels:
        for name, value in _asked(deployment).items():
            if value != AUTO:
                message = f"'{value}' is not run: a technique here brings GEMM kernels of its own"
                raise InputError(message, where=f"setting {name}", hint="Leave one of them out.")
        return deployment.model
    return _with_kernels(running(deployment.model, deployment.pool.chip), deployment, experts)


def running(model: Model, chip: Chip) -> Model:
    """The model with every format as it runs on the chip: where the chip has no rate for one, or no kernel narrows the
    inputs, its weights stream in and are widened. Raises where vLLM cannot run it."""
    if not any(block.formats for block in model.blocks) and model.head_format is None:
        return model

    def run(block: Block) -> Block:
        return replace(block, formats=tuple((role, as_run(format, chip)) for role, format in block.formats))

    head = as_run(model.head_format, chip) if model.head_format else None
    return replace(model, blocks=tuple(run(block) for block in model.blocks), head_format=head)


def _with_kernels(model: Model, deployment: Deployment, experts: str) -> Model:
    """The model with the kernel of its experts, which follows from format, chip, ranks and `moe_backend`."""
    asked = _asked(deployment)
    backend, activation = asked.values()
    _check_asked(model, asked)
    backend = experts or backend
    dtype = deployment.dtype if deployment.dtype in PLAIN_BITS else model.working_dtype

    def run(block: Block) -> Block:
        if not isinstance(block.ffn, MoeFfn):
            return block
        formats = dict(block.formats)
        roles = [role for role in formats if role.startswith(EXPERTS)]
        if backend == AUTO and not roles:
            return block
        found = _experts(formats[roles[0]] if roles else plain(dtype), deployment, backend, activation)
        return replace(block, formats=tuple((formats | dict.fromkeys(roles or ALL_EXPERTS, found)).items()))

    return replace(model, blocks=tuple(run(block) for block in model.blocks))


def _asked(deployment: Deployment) -> dict[str, str]:
    return {name: str(deployment.settings.get(name, AUTO)) for name in ("moe_backend", "moe_activation")}


def _check_asked(model: Model, asked: Mapping[str, str]) -> None:
    """Raise InputError where a setting of experts has nothing to act on."""
    mixtures = [block for block in model.blocks if isinstance(block.ffn, MoeFfn)]
    stored = {dict(block.formats)[role].name for block in mixtures for role, _ in block.formats if role[:7] == EXPERTS}
    if asked["moe_backend"] != AUTO and not mixtures:
        raise InputError(f"{model.name} has no experts", where="setting moe_backend", hint="Leave it out.")
    if asked["moe_activation"] != AUTO and "mxfp4" not in stored:
        message = f"{model.name} has no experts in mxfp4, whose inputs it is for"
        raise InputError(message, where="setting moe_activation", hint="Leave it out.")


def _experts(format: Format, deployment: Deployment, backend: str, activation: str) -> Format:
    chip, ep = deployment.pool.chip, deployment.strategy.ep
    narrowed = format.name == "mxfp4" and activation != AUTO
    if narrowed:
        format = replace(format, activations=activation)
    dtype = gemm_dtype(format)
    kernel = experts_kernel(dtype, chip, ep=ep, static=format.static) if backend == AUTO else backend
    if (narrowed or backend != AUTO) and not runs(kernel, dtype, chip):
        where = "setting moe_activation" if backend == AUTO else "setting moe_backend"
        hint = f"On {chip.name} vLLM takes {experts_kernel(gemm_dtype(replace(format, activations='')), chip, ep=ep)}."
        raise InputError(f"vLLM's {kernel} experts do not run {dtype} on {chip.name}", where=where, hint=hint)
    return replace(format, kernel=kernel, padded_to=padded_to(dtype, kernel))


def as_run(format: Format, chip: Chip) -> Format:
    """A format with the inputs it meets on the chip."""
    why = obstacle(format, chip)
    if why:
        message = f"weights in {format.name} do not run on {chip.name}: {why}"
        raise InputError(message, where="--dtype", hint=_runs_there(chip))
    return format if _native(format, chip) else replace(format, activations="")


def obstacle(format: Format, chip: Chip) -> str:
    """What keeps vLLM from running a format on a chip; empty where nothing does."""
    if _native(format, chip):
        return ""
    if format.activations == "int8":
        return "vLLM multiplies int8 from Turing to Hopper only"
    if not known(replace(format, activations="")):
        return "no GEMM in it can be priced"
    if format.name in OF_TECHNIQUES:
        return f"vLLM has no kernel for {format.name}"
    return not_widened(chip)


def not_widened(chip: Chip) -> str:
    """What keeps a chip from running narrow weights beside 16-bit inputs; empty where nothing does."""
    if chip.vendor != "NVIDIA":
        return "weight-only GEMMs (Marlin) are only on NVIDIA"
    if chip.architecture in BEFORE_MARLIN:
        return "weight-only GEMMs (Marlin) need Turing or later"
    return "" if wide(chip) else "weights are dequantized to 16 bits, and it has no rate in bf16 or fp16"


def _native(format: Format, chip: Chip) -> bool:
    """Whether inputs are narrowed too, and multiplied at the chip's rate for it."""
    rate = NATIVE.get(format.activations)
    return rate in chip.rates_flops and not (rate == "int8" and chip.architecture in NO_INT8)


def wide(chip: Chip) -> list[str]:
    """Formats of 16 bits that a chip multiplies."""
    return [name for name in PLAIN_BITS if name in chip.rates_flops and name != "fp32"]


def supported(chip: Chip) -> list[str]:
    """Formats of weights that vLLM runs on a chip; without one of 16 bits there is none, as activations and the
    cache are in it."""
    if not wide(chip):
        return []
    return wide(chip) + [name for name, format in NARROW.items() if not obstacle(format, chip)]


def _runs_there(chip: Chip) -> str:
    there = ", ".join(supported(chip))
    return f"What runs there: {there}." if there else "Nothing runs there: it has no rate in bf16 or fp16."
