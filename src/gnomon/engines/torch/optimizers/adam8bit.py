"""AdamW whose moments are a byte each, with a scale for every block of them (Dettmers et al. 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gnomon.engines.torch.optimizers.base import LEARNING_RATE, UpdateRule


class AdamW8bit(UpdateRule):
    """By PyTorch's own operators, some values at a time."""

    name = "adam8bit"

    def make(self, masters: Mapping[str, Any], place: Any) -> Any:
        from gnomon.engines.torch.eight_bits import BlockwiseAdamW

        return BlockwiseAdamW(list(masters.values()), LEARNING_RATE)


OPTIMIZERS = (AdamW8bit(),)
