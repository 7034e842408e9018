"""Fine-tuning with adapters of low rank beside frozen weights (LoRA)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gnomon.engines.training import Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.graph.layers import NodePass
from gnomon.techniques.adapters import DROPOUT, RANK, TARGETS, adapted, pass_of, unsupported
from gnomon.techniques.base import TRAINING, Rejection, Technique, Trial, Values


class Lora(Technique[TrainingCase]):
    name = "lora"
    work = (TRAINING,)
    title = "Low-rank adapters beside frozen weights"
    idea = (
        "Two thin matrices beside each frozen one are trained: gradients and optimizer states are theirs alone, and "
        "the network has no GEMMs by weight; adapters add GEMMs of low rank and small kernels."
    )
    trials = (Trial(paper="qlora-rtx4060", words="lora"),)
    parameters = (RANK, TARGETS, DROPOUT)
    excludes = ("qlora", "dora", "vocabulary-parallel")
    searched = False
    last_resort = "adapters beside frozen weights"
    changes = frozenset({"flops", "model flops", "parameters", "state bytes", "activation bytes"})
    follows: ClassVar = {
        "optimizer_s": "adapters alone have gradients and states",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        yield from unsupported(case, int(values["rank"]), str(values["targets"]))

    def program(self, case: TrainingCase, values: Values) -> NodePass | None:
        return pass_of(case, values)

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        return adapted(case.traits, case.dtype)


TECHNIQUES = (Lora(),)
