"""Adapters of low rank beside weights in four bits, dequantised for each use (QLoRA)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gnomon.engines.training import Traits
from gnomon.engines.training.case import TrainingCase
from gnomon.graph.layers import NodePass
from gnomon.techniques.adapters import DROPOUT, RANK, TARGETS, adapted, pass_of, unsupported
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values

DOUBLE = Parameter(
    "double_quant", "scales of nf4 blocks are quantised too, to eight bits", default="yes", choices=("yes", "no")
)


class Qlora(Technique[TrainingCase]):
    name = "qlora"
    work = (TRAINING,)
    title = "Low-rank adapters beside weights in 4 bits"
    idea = (
        "The matrices of the decoder are frozen in nf4 and dequantised for each GEMM, forward, backward and when "
        "recomputed; adapters in 16 or 32 bits are trained beside them."
    )
    trials = (Trial(paper="qlora-rtx4060", words="qlora"),)
    parameters = (RANK, TARGETS, DROPOUT, DOUBLE)
    excludes = ("lora", "dora", "vocabulary-parallel")
    searched = False
    last_resort = "adapters beside frozen weights"
    changes = frozenset({"flops", "model flops", "parameters", "state bytes", "activation bytes"})
    follows: ClassVar = {
        "optimizer_s": "adapters alone have gradients and states",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        yield from unsupported(case, int(values["rank"]), str(values["targets"]))
        style = case.traits.adapters
        yield style is not None and not style.nf4, f"{style.library if style else ''} has no weights in nf4"
        yield case.dtype != "bf16" and case.dtype != "fp16", f"nf4 is dequantised to 16 bits, not to {case.dtype}"
        yield case.model.is_moe, "experts are no linear layers, and are not quantised to nf4"

    def program(self, case: TrainingCase, values: Values) -> NodePass | None:
        return pass_of(case, values, packed=True, double=values["double_quant"] == "yes")

    def traits(self, case: TrainingCase, values: Values) -> Traits:
        return adapted(case.traits, case.dtype)


TECHNIQUES = (Qlora(),)
