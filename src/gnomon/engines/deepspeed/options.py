"""The DeepSpeed, and the Megatron-DeepSpeed around it, that plans are written for."""

from __future__ import annotations

VERSION = "0.19.8"
COMMIT = "207b2d5aad"
"""Of deepspeedai/Megatron-DeepSpeed, whose options of `megatron/arguments.py` are written."""
CONFIG = "ds_config.json"
PROGRAM = "pretrain_gpt.py"
