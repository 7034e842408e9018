"""Data-parallel ranks that take several steps between averages of their weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from gnomon.cost.collective import sm_contention
from gnomon.cost.lines import Steps, Wait
from gnomon.engines.training import RankMemory, StepTable
from gnomon.engines.training.case import TrainingCase
from gnomon.engines.training.memory import rank_held
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values

OVERLAPPED, SYNCHRONOUS = "overlapped", "synchronous"
EVERY = 12.0
"""Steps between averages: CO2 (arXiv:2401.16265) tries 1 to 48."""
FP32_BYTES = 4.0
"""Of a weight that is averaged: steps are too small for 16 bits."""
OUTER_TENSORS = 2
"""In fp32 beside the weights, of both ways: those of the last average and the outer momentum (SlowMo,
arXiv:1910.00643)."""
IN_FLIGHT_TENSORS = 1
"""The copy that is averaged while training goes on."""
READ_TENSORS, WRITTEN_TENSORS = 5.0, 4.0
"""By the outer update: the weights twice, once to be copied; the average, the last one and the momentum; it writes the
copy, the weights, what the next difference starts from, and the momentum."""


class LocalSteps(Technique[TrainingCase]):
    name = "local-steps"
    work = (TRAINING,)
    searched = False
    title = "Several steps between averages of the weights"
    idea = (
        "Data-parallel ranks reduce no gradients: each takes its own steps, and every so many of them weights are "
        "averaged with an outer momentum, by an all-reduce that overlaps with the next steps (CO2) or is waited "
        "for (SlowMo). Slow networks between nodes cost little; training converges to something else."
    )
    trials = (Trial(paper="co2", words="local-steps"),)
    parameters = (
        Parameter("every", "steps from one average to the next", default=EVERY, low=1.0, high=1e4, whole=True),
        Parameter(
            "average", "the all-reduce overlaps with the next steps, or they wait for it", default=OVERLAPPED,
            choices=(OVERLAPPED, SYNCHRONOUS), tried=(OVERLAPPED, SYNCHRONOUS),
        ),
    )  # fmt: skip
    excludes = ("zeroth-order", "offload-optimizer", "chunked-memory", "ring-attention", "token-ring")
    changes = frozenset({"state bytes"})
    follows: ClassVar = {
        "waits_s": "the outer update, and what is exposed of an all-reduce of all weights, over the steps between two"
    }

    remedies: ClassVar = {"waiting": "more steps between averages, or a faster network between nodes would shorten it"}

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        plans = case.plans
        yield plans.copies == 1, "there is one copy of the weights, so nothing is averaged"
        sharded = "shards states over the copies, which then need each other in every step; --zero 0 does not"
        yield plans.zero > 0, lambda row: f"ZeRO {plans.zero[row]} {sharded}"
        apart = "experts are on other ranks than the rest of a copy, and are not averaged apart"
        yield (plans.ep > 1) | (plans.expert_tp != plans.tp), apart
        yield plans.cp > 1, "context-parallel ranks sum the gradients of one sequence, in every step"

    def costs(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        """No gradients are reduced, nor do reductions slow the last backward passes down."""
        optimizer = case.traits.optimizers[case.optimizer]
        summed = self._all_reduce_s(case, case.traits.wire_bytes or optimizer.gradient_bytes)
        contended = case.traits.overlaps(found.grid.pp) * sm_contention(case.machine.chip.sm_count) * summed
        nothing: Floats = np.zeros(found.grid.size)
        chunks = replace(
            found.chunks,
            kinds=tuple(replace(kind, reduce_s=nothing) for kind in found.chunks.kinds),
            ends={end: {**columns, "reduce_s": nothing} for end, columns in found.chunks.ends.items()},
            each={**found.chunks.each, "reduce_s": nothing},
        )
        left = np.maximum(found.optimizer_s - contended, 0.0)
        return replace(found, chunks=chunks, **chunks.columns(), optimizer_s=left)

    def waits(self, steps: Steps, case: TrainingCase, values: Values) -> Wait:
        """A mean step's share of the outer update and of an all-reduce that the steps until the next do not overlap,
        with the SM contention of what they do."""
        every = float(values["every"])
        update, network = self._update_s(case) / every, self._all_reduce_s(case, FP32_BYTES) / every
        if values["average"] == SYNCHRONOUS:
            return Wait(seconds=update + network)
        overlapped = np.minimum(network, steps.seconds)
        contended = sm_contention(case.machine.chip.sm_count) * overlapped
        return Wait(seconds=np.asarray(update + network - overlapped + contended))

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """Each rank keeps the last average and the outer momentum, and the copy that is on its way."""
        tensors = OUTER_TENSORS + (IN_FLIGHT_TENSORS if values["average"] == OVERLAPPED else 0)
        held = rank_held(case.table, used.rank).total
        return replace(used, optimizer=used.optimizer + tensors * FP32_BYTES * held)

    def _all_reduce_s(self, case: TrainingCase, each_bytes: float) -> Floats:
        """Seconds in which all copies sum what the rank with most parameters has."""
        found, seconds = case.table, np.zeros(case.table.grid.size)
        for (copies, tp), rows in found.grid.groups(("copies", "tp")):
            payload = each_bytes * found.rank_parameters[rows]
            shape = {"bytes": payload, "ranks": np.full(rows.size, copies), "stride": np.full(rows.size, tp)}
            seconds[rows] = case.machine.seconds("all_reduce", "bf16", shape)
        return seconds

    def _update_s(self, case: TrainingCase) -> Floats:
        """Seconds of the outer update of the rank with most parameters, and of the copy that is sent."""
        held = FP32_BYTES * case.table.rank_parameters
        shape = {
            "bytes_read": READ_TENSORS * held,
            "bytes_written": WRITTEN_TENSORS * held,
            "efficiency": np.ones(held.shape),
        }
        return case.machine.seconds("elementwise", "bf16", shape)

    def assumed(self, case: TrainingCase, values: Values) -> str:
        each = "step" if values["every"] == 1 else f"{values['every']:,.0f} steps"
        return f"weights are averaged every {each}; what that does to the loss is not predicted"


TECHNIQUES = (LocalSteps(),)
