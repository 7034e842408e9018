"""States written to storage every so many steps, while training waits or beside it."""

from __future__ import annotations

import numpy as np

from gnomon.engines.training import Figures
from gnomon.spec import Recipe, Strategy
from gnomon.spec.workload import Floats
from gnomon.techniques.base import Case, Parameter, TrainingTechnique, Trial, Values
from gnomon.techniques.hosts import host_of, link_bytes_s, memory_bytes_s, neighbours, no_host

AWAY_BYTES = 12.0
"""Of a parameter whose states are on the host already: fp32 weight, momentum and variance."""
WEIGHT_BYTES = 2.0
"""Of a parameter in 16 bits, which every rank of one copy writes."""


class Checkpoints(TrainingTechnique):
    name = "checkpoints"
    searched = False
    title = "Checkpoints of the whole state"
    idea = (
        "Weights and optimizer states are copied to the host and written to storage; lazily, the copy runs beside the "
        "next forward and backward passes, which change none of it, and the update waits only for what is left."
    )
    trials = (
        Trial(
            paper="datastates-llm",
            words="checkpoints:mode=lazy",
            against="checkpoints:mode=synchronous",
            note="A checkpoint every step, as in the paper; datastates-llm:every=100 tries one in a hundred.",
        ),
    )
    parameters = (
        Parameter(
            name="every", whole=True, what="steps from one checkpoint to the next", default=1.0, low=1.0, high=1e6
        ),
        Parameter(
            name="mode",
            what="what training waits for: copy and write, the copy alone, or what the next passes do not hide",
            default="lazy",
            choices=("synchronous", "asynchronous", "lazy"),
            tried=("synchronous", "asynchronous", "lazy"),
        ),
        Parameter(
            name="copy_gb_s",
            floor=0.001,
            what="what one chip's copy to the host reaches; 0 for the link's pace",
            default=0.0,
            low=0.0,
            high=1000.0,
        ),
        Parameter(
            name="write_gb_s",
            floor=0.001,
            what="what one host writes; 0 for the pace of its own disks",
            default=0.0,
            low=0.0,
            high=10000.0,
        ),
    )

    def why_not(self, case: Case, strategy: Strategy, recipe: Recipe, values: Values) -> str:
        return no_host(case.pool)

    def host_bytes(self, found: Figures, case: Case, values: Values) -> Floats | float:
        """A checkpoint lies in the host's memory until it is written."""
        return 0.0 if values["mode"] == "synchronous" else rank_bytes(found, case) * neighbours(found, case)

    def waits(self, found: Figures, step_s: Floats, case: Case, values: Values) -> Floats:
        """A mean step's wait. A copy finds the one before it gone from the host's memory, or waits for it too."""
        every, mode = float(values["every"]), str(values["mode"])
        copy, write = self.seconds(found, case, values)
        waited = waited_s(mode, copy, write, step_s - found.optimizer_s - found.gather_s)
        behind = 0.0 if mode == "synchronous" else np.maximum(write - (every * step_s + waited), 0.0)
        return np.asarray((waited + behind) / every)

    def seconds(self, found: Figures, case: Case, values: Values) -> tuple[Floats, Floats]:
        """Of the copy to the host and of the write, by the rank with most and its neighbours. States that an update
        changes on the host are copied within its memory, beside what comes from the chip."""
        size, there = rank_bytes(found, case), found.away_parameters * AWAY_BYTES
        link = float(values["copy_gb_s"]) * 1e9 or link_bytes_s(found, case)
        copy = np.maximum((size - there) / link, 2 * there / memory_bytes_s(found, case))
        disk = float(values["write_gb_s"]) * 1e9 or host_of(case).nvme_write_bytes_s
        return np.asarray(copy), np.asarray(size * neighbours(found, case) / disk)


def waited_s(mode: str, copy: Floats | float, write: Floats | float, passes: Floats | float) -> Floats:
    """What training waits for a checkpoint that finds room in the host's memory. `passes` are the forward and backward
    passes that come next."""
    if mode == "synchronous":
        return np.asarray(np.add(copy, write))
    return np.asarray(copy if mode == "asynchronous" else np.maximum(np.subtract(copy, passes), 0.0))


def rank_bytes(found: Figures, case: Case) -> Floats:
    """What the fullest rank writes: its states, and its part of the weights. Of what copies hold alike each writes a
    part."""
    alike = np.where(found.grid.zero >= 1, 1, found.grid.copies)
    states = case.traits.optimizers[case.optimizer].state_bytes
    return np.asarray(found.own_parameters * states / alike + found.rank_parameters * WEIGHT_BYTES / found.grid.copies)
