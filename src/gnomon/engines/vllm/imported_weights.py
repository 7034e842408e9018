"""The formats of weights and cache that flags of `vllm serve` ask for."""

from __future__ import annotations

from gnomon.engines.vllm.arguments import FlagTable
from gnomon.errors import InputError, unknown_name
from gnomon.spec import Model

WIDE = ("bf16", "fp16", "fp32")
COMPUTE = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"
}  # fmt: skip
MADE = ("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel")
"""What vLLM quantizes 16-bit weights to while it loads them, and Gnomon prices."""
CACHES = {"": "", "auto": "", "bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "fp8_e4m3": "fp8"}
NEARLY = ("fp8_e5m2", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head")
"""Caches of eight bits in other ways."""


def weight_format(dtype: str, quantization: str, model: Model, said: str, table: FlagTable) -> str:
    """The format of the weights: what the user says, what vLLM makes while it loads, or the checkpoint's own."""
    if dtype not in ("", "auto", *COMPUTE):
        raise unknown_name("format", dtype, ("auto", *COMPUTE), where="--dtype")
    if quantization not in ("", "None", *MADE, *table.methods):
        raise unknown_name("method", quantization, (*MADE, *table.methods), where="--quantization")
    if said:
        return said
    if model.dtype not in WIDE:
        return model.dtype
    if quantization in MADE:
        return "fp8"
    if quantization in table.methods:
        raise InputError(
            f"{quantization} needs a checkpoint that is quantized so, and {model.name} holds {model.dtype}",
            where="--quantization",
            hint="Say which format the weights have: gnomon import … --dtype int4.",
        )
    narrowed = "bf16" if model.dtype == "fp32" else model.dtype  # vLLM's auto never computes in 32 bits
    return COMPUTE.get(dtype, narrowed)


def cache_format(text: str, table: FlagTable) -> tuple[str, str]:
    """The format of the cache, and the vLLM format it stands for where that is another."""
    if text in CACHES:
        return CACHES[text], ""
    if text in NEARLY:
        return "fp8", text
    known = (*CACHES, *NEARLY, *table.caches)
    if text not in known:
        raise unknown_name("format of the cache", text, known[1:], where="--kv-cache-dtype")
    raise InputError(f"a cache in {text} is not modelled", where="--kv-cache-dtype")
