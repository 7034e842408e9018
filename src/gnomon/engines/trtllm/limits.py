"""TensorRT-LLM's limits of a step and of a sequence: the settings behind a capacity, and what a search tries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnomon.engines.base import Capacity, Knob

CONTEXT, SEQUENCES, TOKENS = "max_seq_len", "max_batch_size", "max_num_tokens"
PADDING = "cuda_graph_enable_padding"
"""Off by default; then decode steps of sizes that are not captured are launched kernel by kernel."""
KNOBS = (
    Knob(name=SEQUENCES, values=(64, 128, 256, 512, 1024), label="{} sequences"),
    Knob(name=TOKENS, values=(4096, 16384), label="{} tokens per step"),
    Knob(name=PADDING, values=(1,), label="CUDA graph padding {}"),
)


def capacity(settings: Mapping[str, Any]) -> Capacity:
    return Capacity(
        sequences=int(settings[SEQUENCES]), step_tokens=int(settings[TOKENS]), context=int(settings[CONTEXT])
    )  # fmt: skip


def settings_for(context: int | None, sequences: int | None, step_tokens: int | None) -> dict[str, int]:
    wanted = {CONTEXT: context, SEQUENCES: sequences, TOKENS: step_tokens}
    return {name: value for name, value in wanted.items() if value is not None}


def goes_together(turned: Mapping[str, int]) -> bool:
    """Decodes that take turns are not simulated."""
    return turned.get(SEQUENCES, 1) <= turned.get(TOKENS, math.inf)
