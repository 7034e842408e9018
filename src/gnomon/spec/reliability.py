"""What interrupts a training run and what it does about that: failures, checkpoints, restarts, spare nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gnomon.units import DAY_S

SYNCHRONOUS, ASYNCHRONOUS, LAZY = "synchronous", "asynchronous", "lazy"
CHECKPOINT_MODES = (SYNCHRONOUS, ASYNCHRONOUS, LAZY)
SHARED, LOCAL = "shared", "local"
DETECTION_S = 600.0
"""From a failure to the decision to restart: MegaScale (arXiv:2402.15627, section 6.3) detects and diagnoses in less
than ten minutes on average; NCCL's and PyTorch's own timeout is ten minutes too (ProcessGroupNCCL)."""
RESTART_S = 300.0
"""New processes until the checkpoint is loaded, beside loading it: the low end of the 5 to 20 minutes that Meta's
clusters take in all (arXiv:2410.21680, restart overhead u0)."""
REPAIR_S = DAY_S
"""Until a node is back. Assumed: OPT-175B's cloud took hours to replace one (metaseq, projects/OPT/chronicles), a part
that has to be changed takes days."""
ENOUGH = 0.001
"""Waiting for repairs, of the elapsed time, that the fewest spares may leave."""
MOST_SPARES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRate:
    """Failures that stop a job, per GPU and hour, of hardware and software together."""

    name: str
    """What it is called, or how it was written."""
    per_gpu_hour: float
    hardware: float
    """The share of them that takes a node out for repair."""
    spread: float = 0.0
    """Log standard deviation where it is another cluster's; 0 where it was given."""
    source: str = ""

    def __post_init__(self) -> None:
        assert self.per_gpu_hour >= 0 and 0 <= self.hardware <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedRun:
    """A training run, or a cluster, whose failures somebody published."""

    name: str
    title: str
    gpus: int = 0
    """0 where no single run is meant."""
    per_gpu_hour: float = 0.0
    """0 where no rate is given."""
    failures: int = 0
    days: float = 0.0
    hardware: float | None = None
    effective: float | None = None
    """The share of the elapsed time that counted."""
    kind: str = ""
    """`reported`, `above` (a lower bound) or `derived` from a log."""
    how: str = ""
    recovery: Mapping[str, float] = field(default_factory=dict)
    """Seconds: detection_s, restart_s, interval_s, stall_s, as far as they are known."""
    known: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStorage:
    """Where checkpoints go: storage that all hosts share, or each host's own disks, uploaded in the background."""

    place: str
    bytes_s: float = 0.0
    """All hosts together to shared storage, or one host to its disks; 0 for the usual."""

    @property
    def words(self) -> str:
        return f"{self.place}:{self.bytes_s / 1e9:g}GB/s" if self.bytes_s else self.place


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTolerance:
    """What a question says of a run's failures."""

    failures: FailureRate
    storage: CheckpointStorage = CheckpointStorage(place=SHARED)
    mode: str = ASYNCHRONOUS
    every_steps: int | None = None
    every_s: float | None = None
    """Either, or neither for the best interval."""
    spares: int | None = None
    """Nodes; None for as many as leave hardly any wait."""
    detection_s: float = DETECTION_S
    restart_s: float = RESTART_S
    repair_s: float = REPAIR_S
