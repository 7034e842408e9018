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
PARAMETERS, ACTIVATIONS = "offload-parameters", "offload-activations"
COMPILE = "torch-compile"
HOST, NVME = "host", "nvme"
"""Tiers, as techniques call them."""
ALL_MODULES, STREAMS, BLOCKING = "all", "streams", "blocking"
"""Of activations that are offloaded: which operators' they are, and how copies run."""
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
    tier: str = HOST

    def __bool__(self) -> bool:
        return self.share > 0

    @classmethod
    def of(cls, job: TrainingJob) -> Self:
        values = job.techniques.get(OFFLOAD)
        if values is None:
            return cls()
        share, stride = float(values["share"]), float(values["stride"])
        return cls(share=share, stride=stride, flush=str(values["flush"]), tier=str(values["tier"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterOffload:
    """Weights in the host's memory or on its disks, streamed by layer."""

    share: float = 0.0
    tier: str = HOST
    ahead: float = 1.0

    def __bool__(self) -> bool:
        return self.share > 0

    @classmethod
    def of(cls, job: TrainingJob) -> Self:
        values = job.techniques.get(PARAMETERS)
        if values is None:
            return cls()
        return cls(share=float(values["share"]), tier=str(values["tier"]), ahead=float(values["ahead"]))

    def unsaid(self, title: str) -> list[str]:
        """What no engine has an option for, with what an engine does in its place."""
        found = [f"share={self.share:g} of {PARAMETERS}: {title} offloads all weights"] if 0 < self.share < 1 else []
        if self and self.ahead != 1:
            found.append(f"ahead={self.ahead:g} of {PARAMETERS}: {title} has its own rule for what is copied ahead")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationOffload:
    """Saved activations in the host's memory."""

    share: float = 0.0
    """Of the layers; 0 offloads none."""
    layers: int = 0
    """So many instead, where it is not 0."""
    modules: str = ALL_MODULES
    copies: str = STREAMS
    in_flight: float = 2.0

    def __bool__(self) -> bool:
        return self.share > 0

    @classmethod
    def of(cls, job: TrainingJob) -> Self:
        values = job.techniques.get(ACTIVATIONS)
        if values is None:
            return cls()
        return cls(
            share=float(values["share"]),
            layers=int(values["layers"]),
            modules=str(values["modules"]),
            copies=str(values["copies"]),
            in_flight=float(values["in_flight"]),
        )

    @property
    def whole(self) -> bool:
        """Whether all layers are offloaded with all that they save."""
        return self.share == 1 and not self.layers and self.modules == ALL_MODULES


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


def offloaded(share: float, tier: str = HOST) -> Named:
    """This share of the optimizer states is in the host's memory, or on its disks."""
    return {OFFLOAD: {"share": share} | ({} if tier == HOST else {"tier": tier})}


def streamed(tier: str = HOST) -> Named:
    """Weights are in the host's memory, or on its disks."""
    return {PARAMETERS: {} if tier == HOST else {"tier": tier}}


def activations_offloaded(**values: Any) -> Named:
    """Saved activations are in the host's memory."""
    return {ACTIVATIONS: values}


def saved(every: int, *, waits: bool = True) -> Named:
    """A checkpoint at so many steps, for which training waits or does not."""
    return {CHECKPOINTS: {"every": every, "mode": SYNCHRONOUS if waits else ASYNCHRONOUS}}
