"""Interleaved pipelines: several model chunks per chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gnomon.engines.training import Grid
from gnomon.engines.training.case import TrainingCase
from gnomon.sim.training import code_of
from gnomon.techniques.base import TRAINING, Choice, Parameter, Rejection, Technique, Trial, Values


class InterleavedSchedule(Technique[TrainingCase]):
    name = "interleaved"
    work = (TRAINING,)
    searched = False
    title = "Interleaved pipeline with several model chunks per chip"
    idea = (
        "Each chip of a pipeline holds several non-adjacent model chunks, so the bubble shrinks by that factor and the "
        "point-to-point traffic grows by it."
    )
    trials = (Trial(paper="megatron-lm", words="interleaved"),)
    parameters = (
        Parameter("parts", "model chunks per chip", default=2.0, low=2.0, high=64.0, whole=True, tried=(2.0, 3.0, 4.0)),
    )
    excludes = ("gpipe", "vocabulary-parallel")
    changes = frozenset({"activation bytes"})

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans, parts, layers, micros = case.plans, int(values["parts"]), case.model.layers, case.micros
        yield plans.pp == 1, "there is no pipeline to interleave (pp is 1)"
        yield (
            (plans.vp != 1) & (plans.vp != parts),
            lambda row: f"the plan has {plans.vp[row]} model chunks per chip, not {parts}",
        )
        yield (
            layers < plans.pp * parts,
            lambda row: f"{layers} layers are fewer than {plans.pp[row] * parts} model chunks",
        )
        yield (
            micros % plans.pp != 0,
            lambda row: f"{micros[row]} micro-batches are not a multiple of {plans.pp[row]} stages",
        )

    def rewrite(self, case: TrainingCase, values: Values) -> TrainingCase:
        return case.having(vp=int(values["parts"]), schedule=self.name)

    def expressed_by_config(self, values: Values) -> bool:
        return True

    def ways(self, plans: Grid) -> Mapping[str, Choice]:
        return {"": plans.schedule == code_of(self.name)}


TECHNIQUES = (InterleavedSchedule(),)
