"""PyTorch's AdamW: with fp32 weights and moments, and with all of them in bf16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.torch.optimizers.base import LEARNING_RATE, UpdateRule


class AdamW(UpdateRule):
    name = "adamw"

    def make(self, masters: Mapping[str, Any], place: Any) -> Any:
        import torch

        # On the host too, where there is a chip beside it: one pass over all states, on all its cores.
        return torch.optim.AdamW(list(masters.values()), lr=LEARNING_RATE, fused=place.device.type == "cuda")


class HalfAdamW(AdamW):
    name = "adamw-bf16"
    fp32_masters = False
    dtypes = ("bf16",)


OPTIMIZERS = (AdamW(), HalfAdamW())
