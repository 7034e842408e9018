"""What a published training run measured, and the same of a prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gnomon.accuracy.deployment_rows import Row, Unfit, positive
from gnomon.accuracy.run_columns import flops_per_s
from gnomon.accuracy.run_networks import SINGLE_LAYER
from gnomon.accuracy.scores import Band
from gnomon.spec.answers import TrainingReport

GIB, GB = 1024.0**3, 1e9
STEP, LAYER = "step time", "layer time"
PEAK, DEVICE, PARTS = "peak memory", "device memory", "states and activations"
ON_DEVICE = ("GB", "nvidia-smi")
"""Read off the device: what the allocator reserves, with context and buffers."""
SUMMED = "theoretical"
"""Added up by its source from states and activations, with nothing that kernels need beside them."""
ALLOCATED = ("peak", "rank-0 peak", "GiB at step")
RESERVED = ("TorchTitan",)
"""Frameworks whose logs give what the allocator reserves, not what it allocates."""
STATES = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """Of one run, each by what it is: seconds, and bytes of the fullest rank."""

    seconds: Mapping[str, float]
    memory: Mapping[str, float]
    flops_per_s: float = 0.0
    """Of all chips together, of the model's own FLOPs, where a step's seconds follow from nothing else."""


def figures_of(row: Row) -> RunFigures:
    """Raises `Unfit` for a row without any."""
    seconds = next((name for name in ("step_time_s", "step_time_derived_s") if row[name]), None)
    times = {LAYER if SINGLE_LAYER in row["model"] else STEP: positive(row, seconds)} if seconds else {}
    memory = {_kind(row["mem_kind"]): _bytes(row)} if row["mem_gb"] and _kind(row["mem_kind"]) else {}
    model = row["tflops_kind"] == "model" and not times and row["n_gpus"]
    rate = flops_per_s(row) * positive(row, "n_gpus") if model else 0.0
    if not times and not memory and not rate:
        raise Unfit("neither a step time nor a rate that gives it, nor memory")
    return RunFigures(seconds=times, memory=memory, flops_per_s=rate)


def _kind(named: str) -> str:
    if named.startswith(SUMMED):
        return PARTS
    if named.startswith(ALLOCATED):
        return PEAK
    return DEVICE if named.startswith(ON_DEVICE) else ""


def _bytes(row: Row) -> float:
    return positive(row, "mem_gb") * (GIB if "GiB" in row["mem_kind"] else GB)


def times(figures: RunFigures, answer: TrainingReport) -> Iterator[tuple[str, float, float, Band]]:
    """Name, measured, predicted and band of each time of a whole step."""
    step = answer.step_time_s
    measured = dict(figures.seconds)
    if figures.flops_per_s:
        measured[STEP] = answer.step.flops["model"] / figures.flops_per_s
    if STEP in measured:
        yield STEP, measured[STEP], step.value, (step.low, step.high)


def memory(figures: RunFigures, answer: TrainingReport, framework: str) -> Iterator[tuple[str, float, float]]:
    """Name, measured and predicted of each reading of memory."""
    reserved = answer.reserved_memory_bytes
    said = {
        PEAK: reserved if framework in RESERVED else answer.peak_memory_bytes.value,
        DEVICE: reserved + answer.runtime_memory_bytes,
        PARTS: sum(answer.memory_parts[0][part] for part in STATES),
    }
    for what, measured in figures.memory.items():
        yield what, measured, said[what]
