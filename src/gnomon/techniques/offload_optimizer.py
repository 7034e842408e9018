"""Optimizer states in the host's memory, updated there, or in turns there and on the chip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnomon.engines.training import RankMemory, StepTable
from gnomon.spec import Recipe, Strategy
from gnomon.spec.workload import Floats
from gnomon.techniques.base import Parameter, TrainingCase, TrainingTechnique, Trial, Values
from gnomon.techniques.hosts import LINK_SPREAD, host_of, link_bytes_s, memory_bytes_s, neighbours, no_host

STATE_BYTES = 12.0
"""Of a parameter: fp32 weight, momentum and variance."""
GRADIENT_BYTES = 2.0
"""Of a parameter on its way to the host."""
KNOWN = "adamw"
WEIGHT_BYTES = 2.0
"""Of a parameter on its way back."""
SUBGROUP = 1e8
"""Parameters that are updated and copied together, as DeepSpeed's `sub_group_size` in the papers' runs."""
STAGED = 3
"""Subgroups in the chip's memory at once where it takes turns: one arrives, one is updated, one leaves."""
HOST_SPREAD = 0.25
"""Of the pace of an update on the processors: 46% of a host's bandwidth is one machine's figure, and others' by their
memory; published logs of an H100's host are 30% slower than that, those of an A100's 5%."""
BANDWIDTH_CONTENTION = 4.0
"""How sharply processors and copies that share the host's memory go over into waiting for it. Fitted to the updates of
1.2 thousand million parameters on an H200's host (lab, 2026-11-15, strides 2 to 4 and none)."""
UPDATE_BYTES = 30.0
"""Of a parameter, between the host's memory and its processors in an update."""


class OffloadOptimizer(TrainingTechnique):
    name = "offload-optimizer"
    title = "Optimizer states on the host"
    idea = (
        "Momenta, fp32 weights and gradients live in the host's memory; the update runs on its processors, with a "
        "stride every so many subgroups of it on the chip."
    )
    trials = (
        Trial(paper="zero-offload", words="offload-optimizer"),
        Trial(paper="deep-optimizer-states", words="offload-optimizer:stride=2", against="offload-optimizer"),
    )
    parameters = (
        Parameter(name="share", what="of the states that leave the chip", default=1.0, low=0.01, high=1.0),
        Parameter(
            name="stride",
            whole=True,
            what="every so many subgroups one is updated on the chip; 0 for none",
            default=0.0,
            low=0.0,
            high=64.0,
            tried=(0.0, 2.0, 3.0, 4.0),
        ),
        Parameter(
            name="flush",
            what="whether gradients leave beside the backward pass, or it waits for them",
            default="beside",
            choices=("beside", "waits"),
        ),
        Parameter(
            name="flush_gb_s",
            floor=0.001,
            what="what a rank's waiting flush reaches; 0 for the link's pace",
            default=0.0,
            low=0.0,
            high=1000.0,
        ),
    )

    def reject_reason(self, case: TrainingCase, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        if lacking := no_host(case.pool):
            return lacking
        if strategy.pp > 1:
            return "an update on the host is not priced with a pipeline"
        if recipe.optimizer != KNOWN:
            return f"the host's pace is known of {KNOWN} with its fp32 states, not of {recipe.optimizer}"
        return "a stride of 1 leaves nothing to the host" if values["stride"] == 1 else ""

    def figures(self, found: StepTable, case: TrainingCase, values: Values) -> StepTable:
        beside, flush = _leave_at_once(found), self.flush_s(found, case, values)
        chunks = found.chunks.longer("backward_s", np.where(beside, flush, 0.0))
        return replace(
            found,
            chunks=chunks,
            **chunks.columns(),
            optimizer_s=self.update_s(found, case, values) + np.where(beside, 0.0, flush),
            away_parameters=float(values["share"]) * found.own_parameters,
        )

    def update_s(self, found: StepTable, case: TrainingCase, values: Values) -> Floats:
        away = float(values["share"]) * found.own_parameters
        turns = _turns(values, away)
        here = 1 - float(values["share"]) * (1 - turns)
        host, link = self._efficiencies(found, case)
        return update_s(away, turns, host, memory_bytes_s(found, case), link, found.optimizer_s * here)

    def flush_s(self, found: StepTable, case: TrainingCase, values: Values) -> Floats:
        """Gradients to the host: of a micro-batch, what its backward pass does not hide; of the whole step, where
        they are whole until its end, all of it."""
        _, link = self._efficiencies(found, case)
        efficiency = float(values["flush_gb_s"]) * 1e9 or link
        each = float(values["share"]) * found.own_parameters * GRADIENT_BYTES
        if values["flush"] == "waits":
            return np.asarray(each / efficiency)
        backward = found.backward_s + found.first_backward_s + found.last_backward_s
        return np.asarray(np.maximum(each / link - np.where(_leave_at_once(found), backward, 0.0), 0.0))

    def memory(self, used: RankMemory, found: StepTable, rank: Any, case: TrainingCase, values: Values) -> RankMemory:
        share = float(values["share"])
        layer = np.max([kind.held.total for kind in found.chunks.kinds], axis=0)
        staged = STAGED * SUBGROUP * STATE_BYTES if values["stride"] else SUBGROUP * WEIGHT_BYTES
        flying = np.minimum(used.gradients, GRADIENT_BYTES * 2 * layer)
        flying = np.where(_leave_at_once(found), flying, used.gradients)
        return replace(
            used,
            gradients=used.gradients * (1 - share) + flying * share,
            optimizer=used.optimizer * (1 - share),
            buffers=used.buffers + np.minimum(staged, share * used.optimizer),
        )

    def host_bytes(self, found: StepTable, case: TrainingCase, values: Values) -> Floats:
        each = STATE_BYTES + case.traits.optimizers[case.optimizer].gradient_bytes
        return np.asarray(float(values["share"]) * found.own_parameters * each * neighbours(found, case))

    def _efficiencies(self, found: StepTable, case: TrainingCase) -> tuple[Floats, Floats]:
        """Parameters a second that the host updates for one rank, and bytes a second that a rank copies, one way."""
        efficiency = host_of(case).adam_parameters_s / neighbours(found, case)
        return (
            np.asarray(efficiency * case.drawn("host update", HOST_SPREAD)),
            np.asarray(link_bytes_s(found, case) * case.drawn("host link", LINK_SPREAD)),
        )


def _leave_at_once(found: StepTable) -> NDArray[np.bool_]:
    """Whether a micro-batch's gradients can leave: where ranks share them out as they come, or nobody has others."""
    return np.asarray((found.grid.zero >= 2) | (found.grid.copies == 1))


def update_s(
    away: Floats, turns: Floats | float, host: Floats | float, memory: Floats | float, link: Floats | float,
    chip_s: Floats | float,
) -> Floats:  # fmt: skip
    """Processors, the memory that they share with copies, copies both ways and the chip at once; the last subgroup's
    weights follow. Of parameters that are `away`, the chip updates one of so many `turns`; paces are a second."""
    processors = away * (1 - turns) / host
    shared = away * ((1 - turns) * (UPDATE_BYTES + WEIGHT_BYTES) + turns * 2 * STATE_BYTES) / memory
    longest = np.maximum.reduce(
        np.broadcast_arrays(
            (processors**BANDWIDTH_CONTENTION + shared**BANDWIDTH_CONTENTION) ** (1 / BANDWIDTH_CONTENTION),
            away * ((1 - turns) * WEIGHT_BYTES + turns * STATE_BYTES) / link,
            away * turns * STATE_BYTES / link,
            chip_s,
        )
    )
    return np.asarray(longest + np.minimum(away, SUBGROUP) * WEIGHT_BYTES / link)


def _turns(values: Values, away: Floats) -> Floats:
    """The share of whole subgroups that the chip updates."""
    groups = np.maximum(np.ceil(away / SUBGROUP), 1.0)
    return np.floor(groups / float(values["stride"])) / groups if values["stride"] else np.zeros_like(groups)
