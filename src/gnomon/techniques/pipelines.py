"""Pipeline schedules: GPipe, and interleaved stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.engines.training import Grid, RankMemory, StepTable
from gnomon.sim.training import code_of
from gnomon.spec import Recipe, Strategy
from gnomon.spec.training import RECOMPUTE
from gnomon.techniques.base import Choice, Parameter, TrainingCase, TrainingTechnique, Trial, Values, not_shared_out

HALF_BYTES = 2.0
"""Bytes of an activation value between layers."""


class GPipeSchedule(TrainingTechnique):
    name = "gpipe"
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
    changes = frozenset({"flops"})

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        stages = int(values["stages"])
        if strategy.pp not in (1, stages):
            return f"the plan has {strategy.pp} stages, not {stages}"
        if strategy.vp > 1:
            return f"the plan has {strategy.vp} model chunks per chip, and a GPipe stage has one"
        return (
            _too_long(case, stages)
            or _no_chips(strategy, stages)
            or not_shared_out(case, _staged(strategy, stages), recipe)
        )

    def rewrite(self, strategy: Strategy, recipe: Recipe, values: Values) -> tuple[Strategy, Recipe]:
        moved = _staged(strategy, int(values["stages"]))
        return replace(moved, vp=1), replace(recipe, schedule="gpipe", recompute="full")

    def expressed_by_config(self, values: Values) -> bool:
        return True

    def ways(self, grid: Grid) -> Mapping[str, Choice]:
        own = (grid.schedule == code_of("gpipe")) & (grid.recompute == RECOMPUTE.index("full"))
        lengths = (int(pp) for pp in np.unique(grid.pp) if pp > 1)
        return {f"gpipe:stages={pp}": own & (grid.pp == pp) for pp in lengths}

    def memory(self, used: RankMemory, found: StepTable, rank: Any, case: TrainingCase, values: Values) -> RankMemory:
        """Inputs of the stage for all micro-batches, and all activations of the one that is recomputed."""
        grid = found.grid
        tokens = grid.micro_batch * (case.load.seq // grid.cp)
        entered = tokens * case.model.hidden * HALF_BYTES / np.where(grid.sequence_parallel > 0, grid.tp, 1)
        recomputed = found.layers * found.chunks.peak_bytes(rank)
        return replace(used, activations=found.micros * entered + recomputed)


class InterleavedSchedule(TrainingTechnique):
    name = "interleaved"
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

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        if strategy.pp == 1:
            return "there is no pipeline to interleave (pp is 1)"
        if strategy.vp not in (1, int(values["parts"])):
            return f"the plan has {strategy.vp} model chunks per chip, not {values['parts']:g}"
        parts = strategy.pp * int(values["parts"])
        if case.model.layers < parts:
            return f"{case.model.layers} layers are fewer than {parts} model chunks"
        micros = case.load.global_batch // (strategy.dp * recipe.micro_batch)
        return f"{micros} micro-batches are not a multiple of {strategy.pp} stages" if micros % strategy.pp else ""

    def rewrite(self, strategy: Strategy, recipe: Recipe, values: Values) -> tuple[Strategy, Recipe]:
        return replace(strategy, vp=int(values["parts"])), replace(recipe, schedule="interleaved")

    def expressed_by_config(self, values: Values) -> bool:
        return True

    def ways(self, grid: Grid) -> Mapping[str, Choice]:
        return {"": grid.schedule == code_of("interleaved")}


def _too_long(case: TrainingCase, stages: int) -> str:
    layers = case.model.layers
    return f"{layers} layers are fewer than {stages} stages" if layers < stages else ""


def _no_chips(strategy: Strategy, stages: int) -> str:
    taken = strategy.pp * strategy.dp
    return "" if taken % stages == 0 else f"{taken} chips cannot be divided into pipelines of {stages} stages"


def _staged(strategy: Strategy, stages: int) -> Strategy:
    """The strategy with so many stages, taken from data-parallel ranks."""
    return replace(strategy, pp=stages, dp=strategy.pp * strategy.dp // stages)


TECHNIQUES = (GPipeSchedule(), InterleavedSchedule())
