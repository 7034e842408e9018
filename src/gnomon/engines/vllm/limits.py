"""vLLM's limits of a step and of a sequence: the settings behind a capacity, and what a search tries of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gnomon.engines.base import Capacity, Knob

CONTEXT, SEQUENCES, TOKENS = "max_model_len", "max_num_seqs", "max_num_batched_tokens"
SLOTS = "max_loras"
KNOBS = (
    Knob(name=SLOTS, values=(1, 2, 4, 8, 16, 32), label="adapter slots {}", needs="enable_lora", of_adapters=True),
    Knob(name=SEQUENCES, values=(64, 128, 256, 512, 1024), label="{} sequences"),
    Knob(name=TOKENS, values=(2048, 4096, 8192, 16384), label="chunked prefill {}"),
)


def capacity(settings: Mapping[str, Any]) -> Capacity:
    return Capacity(
        sequences=int(settings[SEQUENCES]), step_tokens=int(settings[TOKENS]), context=int(settings[CONTEXT])
    )  # fmt: skip


def settings_for(context: int | None, sequences: int | None, step_tokens: int | None) -> dict[str, int]:
    wanted = {CONTEXT: context, SEQUENCES: sequences, TOKENS: step_tokens}
    return {name: value for name, value in wanted.items() if value is not None}


def goes_together(turned: Mapping[str, int]) -> bool:
    """vLLM refuses fewer tokens in a step than sequences."""
    return turned.get(SEQUENCES, 1) <= turned.get(TOKENS, math.inf)
