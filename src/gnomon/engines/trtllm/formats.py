"""Number formats under TensorRT-LLM 1.2's PyTorch backend: what runs on which chip, and in which format inputs meet.

Sources: `docs/source/features/quantization.md` of 1.2 (the table of hardware and formats) and
`tensorrt_llm/_torch/modules/linear.py`, `fused_moe/`.
"""

from __future__ import annotations

from dataclasses import replace

from gnomon.engines.base import Deployment
from gnomon.engines.trtllm.options import TRTLLM_EXPERTS
from gnomon.engines.trtllm.platforms import family
from gnomon.errors import InputError
from gnomon.graph.formats import known
from gnomon.spec import Block, Chip, Format, Model, MoeFfn
from gnomon.spec.formats import NARROW, PLAIN_BITS

CACHES = ("bf16", "fp16", "fp8")
"""Formats of the cache; one in nvfp4 has no fit."""
NEEDS = {"fp8": ("Ada", "Hopper", "Blackwell"), "nvfp4": ("Blackwell",)}
"""Chips of which architectures multiply in a format; others are refused, as nothing is widened there."""
BACKEND, OWN, EXPERTS = "setting moe_config_backend", "trtllm", "expert_"
"""Where the kernel of experts is asked for, its families in a profile, and how the roles of their weights begin."""
INT8 = "SmoothQuant is of the TensorRT backend, which 1.2 has deprecated"


def run_model(deployment: Deployment) -> Model:
    """The model with every format as it runs. Raises InputError where TensorRT-LLM cannot run it on the chip."""
    model, chip = deployment.model, deployment.pool.chip
    if deployment.techniques.brings_gemm_kernels:
        return model

    own = _own_experts(deployment)

    def run(block: Block) -> Block:
        return replace(block, formats=tuple((role, _run(role, format, chip, own)) for role, format in block.formats))

    head = as_run(model.head_format, chip) if model.head_format else None
    return replace(model, blocks=tuple(run(block) for block in model.blocks), head_format=head)


def _own_experts(deployment: Deployment) -> bool:
    """Whether experts run with TensorRT-LLM's own kernels for Blackwell (`TRTLLMGenFusedMoE`)."""
    if deployment.settings.get("moe_config_backend") != TRTLLM_EXPERTS:
        return False
    mixtures, chip = [block for block in deployment.model.blocks if isinstance(block.ffn, MoeFfn)], deployment.pool.chip
    if not mixtures:
        raise InputError(f"{deployment.model.name} has no experts", where=BACKEND, hint="Leave it out.")
    if family(chip) != "Blackwell":
        raise InputError(f"TRTLLM experts do not run on {chip.name}", where=BACKEND, hint="They need Blackwell.")
    if not all(map(_experts_formats, mixtures)):
        hint = "They run experts in fp8 blocks, nvfp4 or mxfp4."
        raise InputError(f"TRTLLM experts do not run in {deployment.dtype}", where=BACKEND, hint=hint)
    return True


def _experts_formats(block: Block) -> list[Format]:
    return [format for role, format in block.formats if role.startswith(EXPERTS)]


def _run(role: str, format: Format, chip: Chip, own: bool) -> Format:
    found = as_run(format, chip)
    return replace(found, kernel=OWN) if own and role.startswith(EXPERTS) else found


def check_formats(deployment: Deployment) -> None:
    chip, dtype, kv_dtype = deployment.pool.chip, deployment.dtype, deployment.kv_dtype
    run_model(deployment)
    if dtype in PLAIN_BITS and (dtype not in chip.rates_flops or dtype == "fp32"):
        raise InputError(f"'{dtype}' is not priced for trtllm on {chip.name}", where="--dtype", hint=_there(chip))
    if kv_dtype not in CACHES:
        hint = f"Known: {', '.join(CACHES)}."
        raise InputError(f"'{kv_dtype}' is not priced for trtllm yet", where="--kv-dtype", hint=hint)


def as_run(format: Format, chip: Chip) -> Format:
    """A format with the inputs it meets on the chip: experts in mxfp4 take theirs in mxfp8 on Blackwell, and in 16 bits
    on Hopper (`TRTLLMGenFusedMoE`, `TritonFusedMoE`)."""
    why = obstacle(format, chip)
    if why:
        message = f"weights in {format.name} do not run on {chip.name}: {why}"
        raise InputError(message, where="--dtype", hint=_there(chip))
    if format.name == "mxfp4" and family(chip) == "Blackwell":
        return replace(format, activations="mxfp8")
    return format


def obstacle(format: Format, chip: Chip) -> str:
    """What keeps TensorRT-LLM from running a format on a chip; empty where nothing does."""
    if format.activations == "int8":
        return INT8
    needs = NEEDS.get(format.activations)
    if needs and family(chip) not in needs:
        return f"it needs {' or '.join(needs)}"
    if format.name == "mxfp4" and family(chip) not in ("Hopper", "Blackwell"):
        return "it needs Hopper or Blackwell"
    return "" if known(format) else "no GEMM in it can be priced"


def supported(chip: Chip) -> list[str]:
    """Formats of weights that TensorRT-LLM runs on a chip."""
    wide = [name for name in PLAIN_BITS if name in chip.rates_flops and name != "fp32"]
    return wide + [name for name, format in NARROW.items() if not obstacle(format, chip)] if wide else []


def _there(chip: Chip) -> str:
    there = ", ".join(supported(chip))
    return f"What runs there: {there}." if there else "Nothing runs there: it has no rate in bf16 or fp16."
