"""Techniques that several training engines have options for: what a job asks of them, which an engine writes, and what
options ask for that are read back.

An engine reads the values of other techniques from `TrainingJob.techniques` itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from gnomon.spec.training_job import TrainingJob

Named = dict[str, Mapping[str, Any]]
"""A technique by its name, with the values that are given."""
OFFLOAD, CHECKPOINTS = "offload-optimizer", "async-checkpointing"
SYNCHRONOUS, ASYNCHRONOUS = "synchronous", "asynchronous"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOffload:
    """Optimizer states in the host's memory, where they are updated."""

    share: float = 0.0
    """Of the states; nothing where they stay on the chip."""
    stride: float = 0.0
    """Updates of offloaded states that the GPU takes over."""
    flush: str = "beside"
    """When gradients are copied to the host."""

    def __bool__(self) -> bool:
        return self.share > 0

    @classmethod
    def of(cls, job: TrainingJob) -> Self:
        values = job.techniques.get(OFFLOAD)
        if values is None:
            return cls()
        return cls(share=float(values["share"]), stride=float(values["stride"]), flush=str(values["flush"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Checkpoints that are written while a job runs."""

    every: int = 0
    """Steps from one checkpoint to the next; 0 saves none."""
    mode: str = SYNCHRONOUS

    def __bool__(self) -> bool:
        return self.every > 0

    @property
    def beside(self) -> bool:
        """Whether training goes on meanwhile."""
        return self.every > 0 and self.mode != SYNCHRONOUS

    @property
    def known(self) -> bool:
        """Whether the mode is one that engines have an option for."""
        return self.mode in (SYNCHRONOUS, ASYNCHRONOUS)

    @classmethod
    def of(cls, job: TrainingJob) -> Self:
        values = job.techniques.get(CHECKPOINTS)
        return cls() if values is None else cls(every=int(values["every"]), mode=str(values["mode"]))


def offloaded(share: float) -> Named:
    """This share of the optimizer states is in the host's memory."""
    return {OFFLOAD: {"share": share}}


def saved(every: int, *, waits: bool = True) -> Named:
    """A checkpoint at so many steps, for which training waits or does not."""
    return {CHECKPOINTS: {"every": every, "mode": SYNCHRONOUS if waits else ASYNCHRONOUS}}
