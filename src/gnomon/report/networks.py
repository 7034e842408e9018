"""Commands that ask for a step of a network that is no plain decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnomon.report.text import words

STEPS = {
    "encoder": ("--phase", "prefill", "--tokens", 128, "--batch", 32),
    "diffusion": ("--phase", "forward", "--steps", 50),
    "encoder-decoder": ("--phase", "decode", "--batch", 8, "--context", 100),
    "multimodal": ("--phase", "prefill", "--tokens", 128, "--images", 1),
}
"""By kind, a step that people would ask for first."""


def network_step(model: Mapping[str, Any], named: Sequence[Any]) -> str:
    """`gnomon predict` of such a step; `named` are the words that say the model and where it runs."""
    return words("gnomon", "predict", *named, *STEPS[model["kind"]])
