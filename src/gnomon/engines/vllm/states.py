"""The format in which vLLM keeps the states of mixers without a cache."""

from __future__ import annotations

from gnomon.spec import Model

WIDE = ("nemotron_h", "qwen3_5", "qwen3_5_moe")
"""Families whose states vLLM 0.24 keeps in fp32, by their own configs or by its own choice for them; others' are in the
model's 16-bit format (`mamba_ssm_cache_dtype: auto`)."""


def state_dtype(model: Model) -> str:
    return "fp32" if model.family in WIDE else "bf16"
