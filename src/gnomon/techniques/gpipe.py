"""GPipe: a pipeline in which all micro-batches go forward first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from gnomon.engines.training import Grid, RankMemory
from gnomon.engines.training.case import TrainingCase
from gnomon.sim.training import code_of
from gnomon.spec.training import RECOMPUTE
from gnomon.techniques.base import TRAINING, Choice, Parameter, Rejection, Technique, Trial, Values
from gnomon.techniques.plans import undivided

HALF_BYTES = 2.0
"""Bytes of an activation value between layers."""


class GPipeSchedule(Technique[TrainingCase]):
    name = "gpipe"
    work = (TRAINING,)
    searched = False
    title = "Pipeline, all micro-batches forward first"
    idea = (
        "Stages of layers on neighbouring chips pass micro-batches on, save only the input of a stage, and recompute "
        "the rest in the backward pass."
    )
    trials = (Trial(paper="gpipe", words="gpipe"),)
    parameters = (
        Parameter("stages", "pipeline stages", default=2.0, low=2.0, high=1024.0, whole=True, tried=(2.0, 4.0, 8.0)),
    )
    excludes = ("interleaved",)
    changes = frozenset({"flops", "activation bytes"})

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans, stages, layers = case.plans, int(values["stages"]), case.model.layers
        chips = plans.pp * plans.dp
        yield (
            (plans.pp != 1) & (plans.pp != stages),
            lambda row: f"the plan has {plans.pp[row]} stages, not {stages}",
        )
        yield (
            plans.vp > 1,
            lambda row: f"the plan has {plans.vp[row]} model chunks per chip, and a GPipe stage has one",
        )
        yield layers < stages, f"{layers} layers are fewer than {stages} stages"
        yield (
            chips % stages != 0,
            lambda row: f"{chips[row]} chips cannot be divided into pipelines of {stages} stages",
        )
        yield from undivided(_staged(case, stages))

    def rewrite(self, case: TrainingCase, values: Values) -> TrainingCase:
        return _staged(case, int(values["stages"])).having(vp=1, schedule=self.name, recompute="full")

    def expressed_by_config(self, values: Values) -> bool:
        return True

    def ways(self, plans: Grid) -> Mapping[str, Choice]:
        own = (plans.schedule == code_of(self.name)) & (plans.recompute == RECOMPUTE.index("full"))
        lengths = (int(pp) for pp in np.unique(plans.pp) if pp > 1)
        return {f"gpipe:stages={pp}": own & (plans.pp == pp) for pp in lengths}

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """Inputs of the stage for all micro-batches, and all activations of the one that is recomputed."""
        plans, table = case.plans, case.table
        cut = np.where(plans.sequence_parallel > 0, plans.tp, 1)
        entered = case.most_tokens * case.model.hidden * HALF_BYTES / cut
        recomputed = table.layers * table.chunks.peak_bytes(used.rank)
        return replace(used, activations=table.micros * entered + recomputed)


def _staged(case: TrainingCase, stages: int) -> TrainingCase:
    """The plans with so many stages, taken from data-parallel ranks."""
    return case.having(pp=stages, dp=case.plans.pp * case.plans.dp // stages)


TECHNIQUES = (GPipeSchedule(),)
