"""Embedding and head of a pipeline cut over all its stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gnomon.cost.collective import sm_contention
from gnomon.engines.training import RankMemory, StepTable
from gnomon.spec import Recipe, Strategy
from gnomon.spec.workload import Floats
from gnomon.techniques.base import Parameter, TrainingCase, TrainingTechnique, Trial, Values

WORKING_BYTES = 2.0
"""Of a value between stages."""


class VocabularyParallel(TrainingTechnique):
    name = "vocabulary-parallel"
    title = "Embedding and head over all stages"
    idea = (
        "Every stage of a pipeline holds an equal part of the vocabulary and computes its part of the loss, so no "
        "stage waits for the last; one or two more micro-batches are in flight."
    )
    trials = (Trial(paper="vocabulary-parallelism", words="vocabulary-parallel"),)
    parameters = (
        Parameter(
            name="barriers",
            whole=True,
            what="points at which all stages meet in a micro-batch, each with one more in flight",
            default=1.0,
            low=1.0,
            high=2.0,
            tried=(1.0, 2.0),
        ),
    )
    excludes = ("interleaved", "gpipe")

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        if strategy.pp == 1:
            return "there is no pipeline whose last stage would carry the vocabulary"
        return "" if recipe.schedule == "1f1b" else f"it is built for the schedule 1f1b, not {recipe.schedule}"

    def figures(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """Parts of the ends on every stage, as long as they were together, and what their collectives add."""
        ends, grid = found.chunks.ends, found.grid
        none = {end: {name: np.zeros_like(column) for name, column in part.items()} for end, part in ends.items()}
        each = {name: (ends["first"][name] + ends["last"][name]) / grid.pp for name in ends["first"]}
        each = {
            name: column * (1 if name == "reduce_s" else self._slower(found, case)) for name, column in each.items()
        }
        chunks = replace(found.chunks, ends=none, each=each)
        for name in ("forward_s", "backward_s"):
            chunks = chunks.longer(name, self._met(found, case, getattr(found, name)))
        held = (found.first_parameters + found.last_parameters) / grid.pp
        before = found.rank_parameters
        after = before - np.maximum(found.first_parameters, found.last_parameters) + held
        return replace(
            found,
            chunks=chunks,
            **chunks.columns(),
            first_parameters=np.zeros_like(held),
            last_parameters=np.zeros_like(held),
            each_parameters=held,
            rank_parameters=after,
            own_parameters=found.own_parameters * after / before,
            optimizer_s=found.optimizer_s * after / before,
            gather_s=found.gather_s * after / before,
            head_saved_activation_bytes=found.head_saved_activation_bytes / grid.pp,
            head_peak_bytes=found.head_peak_bytes / grid.pp,
        )

    def waits(self, found: StepTable, step_s: Floats, case: TrainingCase, values: Values) -> Floats:
        """At each barrier a micro-batch stays for one more turn of a stage, the last one too."""
        return np.asarray(float(values["barriers"]) * (found.forward_s + found.backward_s))

    def memory(self, used: RankMemory, found: StepTable, rank: Any, case: TrainingCase, values: Values) -> RankMemory:
        """One more micro-batch at every barrier, and a part of the head on every stage."""
        more = float(values["barriers"]) * found.layers * found.grid.vp * found.saved_activation_bytes
        head = found.head_saved_activation_bytes + found.head_peak_bytes
        return replace(used, activations=used.activations + more, working=np.maximum(used.working, head))

    def _met(self, found: StepTable, case: TrainingCase, pass_s: Floats) -> Floats:
        """What a pass waits for the stages' collectives, which run beside it: forward, the sum of what the embedding's
        parts found, and the last layer's output to all; backward, the same two gradients."""
        grid, network = found.grid, np.zeros(found.grid.size)
        payload = WORKING_BYTES * grid.micro_batch * (case.load.seq // grid.cp) * case.model.hidden
        payload = payload / np.where(grid.sequence_parallel == 1, grid.tp, 1)
        for (tp, cp, dp), rows in grid.groups(("tp", "cp", "dp")):
            stride = np.full(rows.size, tp * cp * dp)
            shape = {"bytes": payload[rows], "ranks": grid.pp[rows], "stride": stride}
            network[rows] = case.machine.seconds("all_reduce", "bf16", shape)
        contended = sm_contention(case.machine.chip.sm_count) * np.minimum(pass_s, network)
        return np.asarray(np.maximum(network - pass_s, 0.0) + contended)

    def _slower(self, found: StepTable, case: TrainingCase) -> Floats:
        """What a product with a part of the vocabulary takes beyond its part of the time."""
        grid, model = found.grid, case.model
        whole = np.ceil(model.vocab / grid.tp)
        common = {
            "m": 1.0 * grid.micro_batch * (case.load.seq // grid.cp),
            "k": np.full(grid.size, float(model.hidden)),
        }

        def product(columns: Floats) -> Floats:
            return case.machine.seconds(
                "gemm", case.machine.chip.half, common | {"n": columns, "batch": common["m"] ** 0}
            )

        one, part = product(whole), product(np.ceil(whole / grid.pp))
        return np.asarray(np.maximum(part * grid.pp / one, 1.0))
