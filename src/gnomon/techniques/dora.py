"""Adapters whose sum with the frozen weights is decomposed into directions and magnitudes (DoRA)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gnomon.engines.training import Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.graph.layers import NodePass
from gnomon.techniques.adapters import DROPOUT, RANK, TARGETS, adapted, pass_of, unsupported
from gnomon.techniques.base import TRAINING, Rejection, Technique, Values


class Dora(Technique[TrainingCase]):
    name = "dora"
    work = (TRAINING,)
    title = "Low-rank adapters with magnitudes of their own"
    idea = (
        "Each row of a frozen matrix and its low-rank update together has a magnitude that is trained; its norm is "
        "computed anew in every forward pass, from the product of both adapters."
    )
    parameters = (RANK, TARGETS, DROPOUT)
    excludes = ("lora", "qlora", "vocabulary-parallel")
    searched = False
    changes = frozenset({"flops", "model flops", "parameters", "state bytes", "activation bytes"})
    follows: ClassVar = {
        "optimizer_s": "adapters alone have gradients and states",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        yield from unsupported(case, int(values["rank"]), str(values["targets"]))
        style = case.traits.adapters
        yield style is not None and not style.dora_saves, f"{style.library if style else ''} has no magnitudes (DoRA)"
        yield case.model.is_moe, "magnitudes of experts are not priced"

    def program(self, case: TrainingCase, values: Values) -> NodePass | None:
        return pass_of(case, values, magnitudes=True)

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        return adapted(case.traits, case.dtype)


TECHNIQUES = (Dora(),)
