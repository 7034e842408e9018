"""Checkpoints written to storage every so many steps, synchronously or in the background."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from gnomon.cost.lines import Steps, Wait
from gnomon.engines.training import RankMemory
from gnomon.engines.training.case import TrainingCase
from gnomon.spec.workload import Floats
from gnomon.techniques.base import TRAINING, Parameter, Rejection, Technique, Trial, Values, bandwidth
from gnomon.techniques.hosts import host_of, link_bytes_s, memory_bytes_s, neighbours, no_host
from gnomon.units import format_bytes, format_duration

AWAY_BYTES = 12.0
"""Of a parameter whose states are on the host already: fp32 weight, momentum and variance."""
WEIGHT_BYTES = 2.0
"""Of a parameter in 16 bits, which every rank of one copy writes."""
SHARED_GB_S = 1.0
"""What a host writes to shared storage while all do. Llama 3 (arXiv:2407.21783, section 3.3.1): 2 TB/s sustained for
16 thousand GPUs, eight per host. Polaris (DataStates-LLM, arXiv:2406.10707): 650 GB/s for 560 nodes. Checkpoints go to
shared storage, local disks are for caching (NVIDIA DGX GB200 user guide, storage)."""
STORAGE_SPREAD = 0.6
"""Of that rate, where no input states it: the peak of Llama 3's storage is 3.5 times what it sustains."""
EVERY = 100.0
"""Steps from one checkpoint to the next, as in BLOOM's training (bigscience, tr11-176B-ml.slurm)."""


class AsyncCheckpointing(Technique[TrainingCase]):
    name = "async-checkpointing"
    work = (TRAINING,)
    aliases = ("checkpoints",)
    searched = False
    title = "Checkpoints of the full state"
    idea = (
        "Weights and optimizer states are copied to the host and written to storage; lazily, the copy overlaps "
        "with the next forward and backward passes, and the update waits only for what is left."
    )
    trials = (
        Trial(
            paper="datastates-llm",
            words="async-checkpointing:mode=lazy",
            against="async-checkpointing:mode=synchronous",
            note="Both write equally often, one checkpoint in 100 steps; datastates-llm:every=1 tries one every step, "
            "as the paper does.",
        ),
    )
    parameters = (
        Parameter("every", "steps from one checkpoint to the next", default=EVERY, low=1.0, high=1e6, whole=True),
        Parameter(
            "mode",
            "training waits for copy and write, the copy, or its exposed part",
            default="lazy",
            choices=("synchronous", "asynchronous", "lazy"),
            tried=("synchronous", "asynchronous", "lazy"),
        ),
        bandwidth("copy_gb_s", "bandwidth of one chip's copy to the host; 0 for the link's bandwidth"),
        Parameter("storage", "shared storage, or each host's own disks", default="shared", choices=("shared", "local")),
        bandwidth(
            "storage_gb_s",
            f"what one host writes there; 0 for {SHARED_GB_S:g} GB/s of shared storage, or what its own disks do",
            high=10000.0,
            aliases=("write_gb_s",),
        ),
        bandwidth(
            "shared_gb_s", "what all hosts together write to shared storage; 0 for as much as each alone", high=1e6
        ),
    )

    follows: ClassVar = {
        "waits_s": "a mean step's share of copies to the host and writes to storage that no pass overlaps",
        "host_bytes": "a checkpoint of all chips of a host, until it is written",
    }

    def reject(self, case: TrainingCase, values: Values) -> Iterator[Rejection]:
        local = values["storage"] == "local" and bool(values["shared_gb_s"])
        yield local, "shared_gb_s describes shared storage, but storage is local"
        yield True, no_host(case.pool)

    def memory(self, used: RankMemory, case: TrainingCase, values: Values) -> RankMemory:
        """A checkpoint stays in host memory until it is written."""
        return used if values["mode"] == "synchronous" else replace(used, host=used.host + rank_bytes(case))

    def waits(self, steps: Steps, case: TrainingCase, values: Values) -> Wait:
        """The mean wait per step. A copy also waits while the previous checkpoint is still in host memory."""
        found, every, mode = case.table, float(values["every"]), str(values["mode"])
        copy, write = self.seconds(case, values)
        waited = waited_s(mode, copy, write, steps.seconds - found.optimizer_s - found.gather_s)
        behind = 0.0 if mode == "synchronous" else np.maximum(write - (every * steps.seconds + waited), 0.0)
        return Wait(seconds=np.asarray((waited + behind) / every))

    def seconds(self, case: TrainingCase, values: Values) -> tuple[Floats, Floats]:
        """Seconds of the copy to the host and of the write, for the fullest rank and those on its host. States that the
        host updates are copied within its memory, while the rest comes from the chip."""
        size, there = rank_bytes(case), case.table.away_parameters * AWAY_BYTES
        link = float(values["copy_gb_s"]) * 1e9 or link_bytes_s(case)
        copy = np.maximum((size - there) / link, 2 * there / memory_bytes_s(case))
        return np.asarray(copy), np.asarray(size * neighbours(case) / self.storage_bytes_s(case, values))

    def storage_bytes_s(self, case: TrainingCase, values: Values) -> Floats:
        """Bytes per second that one host writes while all others do; drawn where no input states it."""
        alone, together = float(values["storage_gb_s"]) * 1e9, float(values["shared_gb_s"]) * 1e9
        hosts = np.ceil(case.plans.ranks / case.pool.machine_chips)
        if alone or together:
            return np.asarray(np.minimum(alone or np.inf, (together or np.inf) / hosts))
        usual = SHARED_GB_S * 1e9 if values["storage"] == "shared" else host_of(case).nvme_write_bytes_s
        return np.asarray(usual * case.drawn("storage", STORAGE_SPREAD) * np.ones(hosts.shape))

    def assumed(self, case: TrainingCase, values: Values) -> str:
        """Where checkpoints go, how fast and how often."""
        size = float((rank_bytes(case) * neighbours(case))[0])
        rate = float(self.storage_bytes_s(case, values)[0])
        each = "step" if values["every"] == 1 else f"{values['every']:,.0f} steps"
        place = "shared storage" if values["storage"] == "shared" else "its own disks"
        given = values["storage_gb_s"] or values["shared_gb_s"]
        own = "" if given else " (assumed; set storage_gb_s or shared_gb_s)"
        write = f"each host writes {format_bytes(size)} to {place} at {rate / 1e9:.3g} GB/s, in"
        return f"every {each} {write} {format_duration(size / rate)}{own}"


def waited_s(mode: str, copy: Floats | float, write: Floats | float, passes: Floats | float) -> Floats:
    """Seconds that training waits for a checkpoint that finds room in host memory. `passes` are the seconds of the next
    forward and backward passes."""
    if mode == "synchronous":
        return np.asarray(np.add(copy, write))
    return np.asarray(copy if mode == "asynchronous" else np.maximum(np.subtract(copy, passes), 0.0))


def rank_bytes(case: TrainingCase) -> Floats:
    """Bytes that the fullest rank writes: its states, and its part of the weights. What data-parallel ranks replicate,
    each writes a part of."""
    found = case.table
    replicas = np.where(found.grid.zero >= 1, found.grid.replicas, found.grid.copies)
    states = case.traits.optimizers[case.optimizer].state_bytes
    return np.asarray(
        found.own_parameters * states / replicas + found.rank_parameters * WEIGHT_BYTES / found.grid.copies
    )


TECHNIQUES = (AsyncCheckpointing(),)
