"""The contract of a training engine, operations side: how its plans are written and read back. Predictions never import
it.

An engine's own is `operations.py` in its folder; `gnomon.engines.training_operations_of` finds it by its target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gnomon.engines.training.launched import LaunchedProgram
from gnomon.spec import Plan, Recipe, Strategy, TrainingLoad
from gnomon.spec.imported import IgnoredOption
from gnomon.spec.training_job import TrainingJob

OFFLOAD, CHECKPOINTS = "offload-optimizer", "async-checkpointing"
"""Techniques that engines have options for; `TechniqueOptions` has what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueOptions:
    """What a plan's techniques ask of an engine beyond degrees and recipe; nothing by default."""

    offloaded: float = 0.0
    """Share of the optimizer states that lives in the host's memory and is updated there."""
    stride: float = 0.0
    """Updates of offloaded states that the GPU takes over."""
    flush: str = "beside"
    """When gradients are copied to the host."""
    save_every: int = 0
    """Steps from one checkpoint to the next; 0 saves none."""
    save_mode: str = "synchronous"
    """synchronous, asynchronous, or another word of the technique."""

    @property
    def save_async(self) -> bool:
        return self.save_every > 0 and self.save_mode != "synchronous"


NOTHING = TechniqueOptions()


def offloaded_text(share: float) -> str:
    """The technique of a plan that keeps this share of the optimizer states in the host's memory."""
    return f"{OFFLOAD}:share={share:g}"


def saved_text(every: int, *, waits: bool = True) -> str:
    """The technique of a plan that saves a checkpoint at so many steps, for which training waits or does not."""
    return f"{CHECKPOINTS}:every={every},mode={'synchronous' if waits else 'asynchronous'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a launch command says of a network that it does not name; 0 where it does not say it."""

    layers: int
    hidden: int
    heads: int = 0
    kv_heads: int = 0
    inner: int = 0
    vocab: int = 0
    experts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTraining:
    """A training run as a command and its configuration files say it."""

    model: str = ""
    """As it is written; empty where only its shape is."""
    shape: ModelShape | None = None
    stages: tuple[int, ...] = ()
    """Layers of each pipeline part, where it says them."""
    strategy: Strategy = field(default_factory=Strategy)
    recipe: Recipe = field(default_factory=Recipe)
    load: TrainingLoad | None = None
    dtype: str = "bf16"
    version: str = ""
    ignored: tuple[IgnoredOption, ...] = ()
    plan_file: str = ""
    """The plan that it runs, where it is given one instead of options."""


class TrainingNames(Protocol):
    """What a command names and an engine does not open itself."""

    def config(self, path: str, *, partly: bool = False) -> Mapping[str, Any]:
        """The fields of a configuration file, in YAML, JSON or TOML."""

    def text(self, path: str) -> str:
        """The text of a file."""


class TrainingReader(Protocol):
    """The part of an engine's operations that reads what already runs."""

    def reads(self, program: LaunchedProgram) -> bool:
        """Whether a started program is the engine's."""

    def known_fields(self, fields: Mapping[str, Any]) -> int:
        """How many fields of a configuration file are the engine's; 0 where it is not one of its."""

    def import_training(self, program: LaunchedProgram, names: TrainingNames) -> ImportedTraining:
        """Degrees, recipe and load of a command. Nothing is run: every option acts, is listed as ignored with the
        reason, or raises InputError."""


class TrainingOperations(TrainingReader, Protocol):
    """What writes and reads training plans of one engine: the module `operations` of its folder."""

    ENGINE: str
    TITLE: str
    """As its users write it."""
    EXPRESSES: tuple[str, ...]
    """Techniques that its options say."""

    def version_of(self, plan: Plan) -> str:
        """The version of the engine that files are written for."""

    def files(self, job: TrainingJob, plan: Plan, notes: Sequence[str], extra: TechniqueOptions) -> dict[str, str]:
        """`run.sh`, which every node starts, and what it reads; notes stand in the header."""

    def command(self, job: TrainingJob, extra: TechniqueOptions) -> list[str]:
        """The command that starts the job on one node, or on each of several except for their rendezvous."""

    def check(self, job: TrainingJob) -> None:
        """Raise InputError where the engine would not train the job as it was priced."""

    def not_expressed(self, job: TrainingJob, plan: Plan, extra: TechniqueOptions) -> list[str]:
        """What of a job's plan the engine's configuration cannot express."""
