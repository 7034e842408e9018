"""Seconds that a checkpoint of a training step takes: to copy, to write, to load again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gnomon.cost.host_link import ROOM
from gnomon.errors import InputError
from gnomon.planning.training.step import TrainingStep
from gnomon.spec import Host
from gnomon.spec.reliability import ASYNCHRONOUS, LAZY, LOCAL, SYNCHRONOUS, FaultTolerance
from gnomon.techniques.async_checkpointing import SHARED_GB_S, rank_bytes, waited_s
from gnomon.techniques.hosts import neighbours
from gnomon.units import format_bytes

TO, MODE = "--checkpoint-to", "--checkpoint-mode"
BLOCKED_S = 0.34
"""What a checkpoint blocks training for beside the copy: planning, pinned buffers, a barrier. ByteCheckpoint
(arXiv:2407.20143, table 8): 0.34 s of a 7B model on 1,488 GPUs, whose bytes take next to nothing; its 405B model on
8,960 GPUs was blocked for 0.59 s."""
FINISHED_S = 20.0
"""What writing it to shared storage takes beside its bytes: 20.13 s of the same 7B model; 51.06 s of the 405B one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTimes:
    """One checkpoint of all ranks. A failure that leaves the nodes alone is restarted from their own disks, where
    checkpoints go there; any other one from shared storage."""

    bytes: float
    stall_s: float
    soft_lag_s: float
    hard_lag_s: float
    soft_load_s: float
    hard_load_s: float
    assumed: tuple[str, ...]


def checkpoint_times(step: TrainingStep, asked: FaultTolerance) -> CheckpointTimes:
    """A checkpoint has the weights and the states of the optimizer; reads are as fast as writes."""
    figures, case, host = step.figures, step.priced, _host(step, asked)
    states = step.traits.optimizers[step.job.recipe.optimizer]
    total = step.job.model.parameters * (states.state_bytes + states.weight_bytes)
    own = float(rank_bytes(case)[0])
    mine = own * float(neighbours(case)[0])
    copy = 0.0
    if host is not None:
        copy = own / host.copy_bytes_s(int(neighbours(case)[0]))
        _check_memory(mine, host, asked.mode)
    load = total / _shared_bytes_s(step, asked)
    upload = load + FINISHED_S
    local = asked.storage.place == LOCAL
    write = _disk_s(mine, host, asked, reads=False) if local else upload
    passes = step.timeline.step_s - float(figures.optimizer_s[0] + figures.gather_s[0])
    lag = {SYNCHRONOUS: 0.0, ASYNCHRONOUS: write, LAZY: write + min(copy, passes)}[asked.mode]
    return CheckpointTimes(
        bytes=total,
        stall_s=BLOCKED_S + float(waited_s(asked.mode, copy, write, passes)),
        soft_lag_s=lag,
        hard_lag_s=lag + (upload if local else 0.0),
        soft_load_s=_disk_s(mine, host, asked, reads=True) if local else load,
        hard_load_s=load,
        assumed=tuple(_assumed(step, asked)),
    )


def _host(step: TrainingStep, asked: FaultTolerance) -> Host | None:
    """The host of a rank; None where chip and host share one memory, or where nothing of it is needed."""
    pool, place = step.pool, asked.storage.place
    if pool.machine is not None:
        return None if pool.chip.unified and place != LOCAL else pool.machine
    if place == LOCAL and not asked.storage.bytes_s:
        hint = "Give their bandwidth, such as local:10GB/s, or use shared."
        raise InputError(f"the disks of the host of {pool.chip.name} are not known", where=TO, hint=hint)
    if asked.mode != SYNCHRONOUS and not pool.chip.unified:
        hint = f"Use {MODE} synchronous, which counts the write alone, or a cluster's file that names the host."
        raise InputError(f"the host of {pool.chip.name} is not known, which checkpoints are copied to", where=MODE,
                         hint=hint)  # fmt: skip
    return None


def _check_memory(size: float, host: Host, mode: str) -> None:
    room = host.memory_bytes * ROOM
    if mode != SYNCHRONOUS and size > room:
        raise InputError(
            f"{format_bytes(size)} of a checkpoint do not fit the memory of a host, {format_bytes(room)} usable",
            where=MODE,
            hint="Use synchronous, or more nodes.",
        )


def _shared_bytes_s(step: TrainingStep, asked: FaultTolerance) -> float:
    """What all hosts together write to shared storage, no more than their adapters carry."""
    pool, ranks = step.pool, step.job.strategy.ranks
    given = asked.storage.bytes_s if asked.storage.place != LOCAL else 0.0
    hosts = math.ceil(ranks / pool.machine_chips)
    return min(given or SHARED_GB_S * 1e9 * hosts, ranks * pool.scaleout.bandwidth_bytes_s)


def _disk_s(size: float, host: Host | None, asked: FaultTolerance, *, reads: bool) -> float:
    if asked.storage.bytes_s or host is None:
        return size / asked.storage.bytes_s
    return size / (host.nvme_read_bytes_s if reads else host.nvme_write_bytes_s)


def _assumed(step: TrainingStep, asked: FaultTolerance) -> Iterator[str]:
    local = asked.storage.place == LOCAL
    if local or not asked.storage.bytes_s:
        yield (
            f"shared storage takes {SHARED_GB_S:g} GB/s of each host (Llama 3's sustains 2 TB/s for 2,048 hosts, "
            "arXiv:2407.21783)"
        )
    yield (
        f"a checkpoint takes {BLOCKED_S:g} s beside the copy, and {FINISHED_S:g} s beside its bytes to shared storage "
        "(ByteCheckpoint, arXiv:2407.20143)"
    )
    if local and not asked.storage.bytes_s:
        yield f"the disks of each host as in {step.pool.machine.name if step.pool.machine else 'its node'}"
