"""Vocabulary parallelism: embedding and head sharded over all pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from gnomon.cost.collective import sm_contention
from gnomon.cost.lines import Steps, Wait
from gnomon.engines.training import RankMemory, StepTable
from gnomon.engines.training.case import TrainingCase
from gnomon.sim.training import code_of, names, usual_schedule
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values

WORKING_BYTES = 2.0
"""Bytes of a value between stages."""


class VocabularyParallel(Technique[TrainingCase]):
    name = "vocabulary-parallel"
    work = (TRAINING,)
    title = "Embedding and head sharded over all stages"
    idea = (
        "Every stage of a pipeline holds an equal shard of the vocabulary and computes its part of the loss, so no "
        "stage waits for the last; one or two more micro-batches are in flight."
    )
    trials = (Trial(paper="vocabulary-parallelism", words="vocabulary-parallel"),)
    parameters = (
        Parameter(
            "barriers",
            "barriers per micro-batch, each with one more in flight",
            default=1.0,
            low=1.0,
            high=2.0,
            whole=True,
            tried=(1.0, 2.0),
        ),
    )
    excludes = ("interleaved", "gpipe")
    changes = frozenset({"activation bytes"})
    follows: ClassVar = {
        "optimizer_s": "every stage updates its part of the vocabulary",
        "waits_s": "one more pass of a stage at each barrier",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans, usual = case.plans, usual_schedule(1).name
        yield plans.pp == 1, "there is no pipeline (pp is 1)"
        yield (
            plans.schedule != code_of(usual),
            lambda row: f"it needs the schedule {usual}, not {names()[plans.schedule[row]]}",
        )

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """The step with embedding and head divided over all stages, and with their collectives."""
        ends, grid = found.chunks.ends, found.grid
        none = {end: {name: np.zeros_like(column) for name, column in part.items()} for end, part in ends.items()}
        each = {name: (ends["first"][name] + ends["last"][name]) / grid.pp for name in ends["first"]}
        each = {
            name: column * (1 if name == "reduce_s" else self._slowdown(found, case)) for name, column in each.items()
        }
        chunks = replace(found.chunks, ends=none, each=each)
        for name in ("forward_s", "backward_s"):
            chunks = chunks.longer(name, self._exposed_s(found, case, getattr(found, name)))
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

    def waits(self, steps: Steps, case: TrainingCase, values: Values) -> Wait:
        """Each barrier delays every micro-batch, the last one too, by one forward and backward of a stage."""
        return Wait(seconds=float(values["barriers"]) * (case.table.forward_s + case.table.backward_s))

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """One more micro-batch in flight per barrier, and a shard of the head on every stage."""
        found = case.table
        more = float(values["barriers"]) * found.layers * found.grid.vp * found.saved_activation_bytes
        head = found.head_saved_activation_bytes + found.head_peak_bytes
        return replace(used, activations=used.activations + more, working=np.maximum(used.working, head))

    def _exposed_s(self, found: StepTable, case: TrainingCase, pass_s: Floats) -> Floats:
        """Exposed seconds of the stages' collectives, which overlap with a pass: forward, the all-reduce of the
        embedding's shards and the broadcast of the last layer's output; backward, their gradients."""
        grid, network = found.grid, np.zeros(found.grid.size)
        payload = WORKING_BYTES * case.tokens * case.model.hidden
        payload = payload / np.where(grid.sequence_parallel == 1, grid.tp, 1)
        for (tp, cp, dp), rows in grid.groups(("tp", "cp", "dp")):
            stride = np.full(rows.size, tp * cp * dp)
            shape = {"bytes": payload[rows], "ranks": grid.pp[rows], "stride": stride}
            network[rows] = case.machine.seconds("all_reduce", "bf16", shape)
        contended = sm_contention(case.machine.chip.sm_count) * np.minimum(pass_s, network)
        return np.asarray(np.maximum(network - pass_s, 0.0) + contended)

    def _slowdown(self, found: StepTable, case: TrainingCase) -> Floats:
        """How much slower the GEMM with a shard of the vocabulary is than its share of the unsharded GEMM."""
        grid, model = found.grid, case.model
        columns = np.ceil(model.vocab / grid.tp)
        common: dict[str, Floats] = {
            "m": np.asarray(1.0 * case.tokens),
            "k": np.full(grid.size, float(model.hidden)),
        }

        def gemm_s(n: Floats) -> Floats:
            shape = common | {"n": n, "batch": common["m"] ** 0}
            return case.machine.seconds("gemm", case.machine.chip.half, shape)

        shard_s = gemm_s(np.ceil(columns / grid.pp))
        return np.asarray(np.maximum(shard_s * grid.pp / gemm_s(columns), 1.0))


TECHNIQUES = (VocabularyParallel(),)
