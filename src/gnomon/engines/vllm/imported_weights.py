"""The formats of weights and cache that flags of `vllm serve` ask for."""

from __future__ import annotations

from gnomon.engines.command_line import names
from gnomon.engines.imported import WeightFormats

MADE = ("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel")
"""What vLLM quantizes 16-bit weights to while it loads them, and Gnomon prices."""
STORED = names("""
    awq auto_awq awq_marlin gptq auto_gptq gptq_marlin compressed-tensors modelopt modelopt_fp4 modelopt_mxfp8
    modelopt_mixed fbgemm_fp8 fp_quant humming bitsandbytes experts_int8 quark moe_wna16 torchao inc mxfp4
    gpt_oss_mxfp4 deepseek_v4_fp8 online int8_per_channel_weight_only mxfp8""")
"""Other methods of `--quantization`, most of which say how a checkpoint is stored."""
CACHES = {"": "", "auto": "", "bfloat16": "bf16", "float16": "fp16", "fp8": "fp8", "fp8_e4m3": "fp8"}
NEARLY = ("fp8_e5m2", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head")
"""Caches of eight bits in other ways."""
OTHER_CACHES = names("""
    int8_per_token_head nvfp4 turboquant_3bit_nc turboquant_4bit_nc turboquant_k3v4_nc turboquant_k8v4""")
FORMATS = WeightFormats(
    made=MADE, stored=STORED, widest="bf16", caches=CACHES, nearly=NEARLY, other_caches=OTHER_CACHES
)
