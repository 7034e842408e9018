"""Gradients summed and reduced in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.sums import in_half, updates_wide
from gnomon.engines.training.traits import Traits
from gnomon.techniques.base import TRAINING, Rejection, Technique, Values


class HalfGradients(Technique[TrainingCase]):
    """What Megatron-LM does in fp16 unless asked for sums in fp32. Engines that do so anyway are left as they are."""

    name = "half-gradients"
    work = (TRAINING,)
    title = "Gradients summed and reduced in 16 bits"
    idea = (
        "Gradients are summed over micro-batches and reduced over ranks in the format of the weights in place of fp32, "
        "which halves their bytes in memory and on the network; an update widens them first. Sums round."
    )
    excludes = ("lora", "qlora", "dora", "zeroth-order")
    searched = False
    """What it makes of training is not predicted, and it is always faster."""
    follows: ClassVar = {"optimizer_s": "gradients are widened first, and read and cleared in 16 bits"}

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        one = case.traits.optimizers.get(case.optimizer)
        why = f"{case.optimizer} has no weights in 16 bits whose gradients an update takes in fp32"
        yield one is None or not updates_wide(one), why

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        return in_half(case.traits)


TECHNIQUES = (HalfGradients(),)
