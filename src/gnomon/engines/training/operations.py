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
from gnomon.spec.training import RANDOM
from gnomon.spec.training_job import TrainingJob


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
class ImportedBatches:
    """How a command makes batches of sequences that differ in length."""

    told: str
    """As the command says it."""
    packing: str = ""
    document_masking: bool | None = None
    sampling: str = RANDOM
    lengths: str = ""
    """The distribution, of files that Gnomon wrote."""
    seed: int = 0


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
    batches: ImportedBatches | None = None
    dtype: str = "bf16"
    version: str = ""
    techniques: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Techniques that its options ask for, by name, with the values that they give."""
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
    """Names of the techniques that its options say, whose values `TrainingJob.techniques` has."""

    def version_of(self, plan: Plan) -> str:
        """The version of the engine that files are written for."""

    def files(self, job: TrainingJob, plan: Plan, notes: Sequence[str]) -> dict[str, str]:
        """`run.sh`, which every node starts, and what it reads; notes stand in the header."""

    def command(self, job: TrainingJob) -> list[str]:
        """The command that starts the job on one node, or on each of several except for their rendezvous."""

    def check(self, job: TrainingJob) -> None:
        """Raise InputError where the engine would not train the job as it was priced."""

    def not_expressed(self, job: TrainingJob, plan: Plan) -> list[str]:
        """What of a job's plan the engine's configuration cannot express; of techniques `plan` has only those."""
